"""Errors that a peer can cause. Each carries the MQTT 5 reason code that tells the peer what it did wrong."""


class MqttError(Exception):
    """The connection must end. `reason_code` is sent to a version 5 peer (section 2.4)."""

    reason_code = 0x80

    def __init__(self, message: str, reason_code: int | None = None) -> None:
        super().__init__(message)
        if reason_code is not None:
            self.reason_code = reason_code


class MalformedPacketError(MqttError):
    """The bytes are not an MQTT packet."""

    reason_code = 0x81


class ProtocolError(MqttError):
    """A packet is well formed but not allowed at this point."""

    reason_code = 0x82


class PacketTooLargeError(MqttError):
    reason_code = 0x95
