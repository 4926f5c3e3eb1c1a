"""An MQTT 5 client for tests on a raw connection. Packets are those of the `mqtt5` package."""

from typing import Any

import mqtt5
from mqtt5 import QoS, TopicFilter

from tests.mqtt.raw import ConnectionEndedError, Conversation
from tests.mqtt.servers import KIND


def wanted(
    name: str, qos: int = 2, *, no_local: bool = False, as_published: bool = False, handling: int = 0
) -> TopicFilter:
    """A filter with its subscription options; all off, as they are when the byte holds the QoS alone."""
    return TopicFilter(
        name,
        max_qos=QoS(qos),
        no_local=no_local,
        retain_as_published=as_published,
        retain_handling=mqtt5.RetainHandling(handling),
    )


class Client5(Conversation[mqtt5.Packet]):
    """A client that does what the standard asks of one, unless a test sends packets of its own."""

    connack: mqtt5.ConnAckPacket

    def decode(self, data: bytes) -> mqtt5.Packet:
        received, size = mqtt5.read(memoryview(data))
        assert size == len(data)
        return received

    def is_pong(self, received: mqtt5.Packet) -> bool:
        return isinstance(received, mqtt5.PingRespPacket)

    def subscribe(self, *filters: str | TopicFilter, qos: int = 2, subscription_id: int | None = None) -> list[int]:
        packet_id = self.next_id()
        options = [wanted(each, qos) if isinstance(each, str) else each for each in filters]
        self.send(mqtt5.SubscribePacket(packet_id, options, subscription_id=subscription_id).write())
        answer = self.reply(mqtt5.SubAckPacket)
        assert answer.packet_id == packet_id
        return [int(code) for code in answer.reason_codes]

    def unsubscribe(self, *filters: str) -> list[int]:
        packet_id = self.next_id()
        self.send(mqtt5.UnsubscribePacket(packet_id, list(filters)).write())
        answer = self.reply(mqtt5.UnsubAckPacket)
        assert answer.packet_id == packet_id
        return [int(code) for code in answer.reason_codes]

    def publish(self, topic: str, payload: bytes, qos: int = 1, **properties: Any) -> int:
        """Publishes and completes the handshake; the reason code of the (first) acknowledgement."""
        packet_id = self.next_id() if qos else None
        self.send(mqtt5.PublishPacket(topic, payload, qos=QoS(qos), packet_id=packet_id, **properties).write())
        if packet_id is None:
            self._set_aside.extend(self.ping())
            return 0
        if qos == 1:
            taken = self.reply(mqtt5.PubAckPacket)
            assert taken.packet_id == packet_id
            return int(taken.reason_code)
        received = self.reply(mqtt5.PubRecPacket)
        assert received.packet_id == packet_id
        if int(received.reason_code) < 0x80:
            self.send(mqtt5.PubRelPacket(packet_id).write())
            completed = self.reply(mqtt5.PubCompPacket)
            assert (completed.packet_id, int(completed.reason_code)) == (packet_id, 0)
        return int(received.reason_code)

    def take(self) -> mqtt5.PublishPacket:
        """Receives a PUBLISH and acknowledges it as its QoS asks."""
        message = self.expect(mqtt5.PublishPacket)
        if message.packet_id is None:
            return message
        if message.qos == QoS.AT_LEAST_ONCE:
            self.send(mqtt5.PubAckPacket(message.packet_id).write())
        else:
            self.send(mqtt5.PubRecPacket(message.packet_id).write())
            assert self.reply(mqtt5.PubRelPacket).packet_id == message.packet_id
            self.send(mqtt5.PubCompPacket(message.packet_id).write())
        return message

    def refused(self, *codes: int) -> None:
        """The server sends DISCONNECT with one of these reason codes, then closes the connection."""
        try:
            code = int(self.reply(mqtt5.DisconnectPacket).reason_code)
        except ConnectionEndedError:
            if KIND == "mosquitto":  # 2.0.11 often closes without a word, which 4.13.1 allows
                return
            raise
        assert code in codes, f"expected {[hex(each) for each in codes]}, the server gave {code:#x}"
        rest = self.closed()
        assert not rest, f"after its DISCONNECT the server sent {rest!r}"

    def disconnect(self, reason: int = 0, session_expiry: int | None = None) -> None:
        """DISCONNECT, and waits until the server has closed: then it has done what it does at a disconnection."""
        code = mqtt5.DisconnectReasonCode(reason)
        self.send(mqtt5.DisconnectPacket(reason_code=code, session_expiry_interval=session_expiry).write())
        self.closed()
        self.close()
