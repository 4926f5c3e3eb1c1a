"""How a broker introduces itself to its parent and to its children, and what the parent's answer means.

This module owns the CONNECT of a link and the child's side of the proof that both ends know the link secret. Everything
that happens on an accepted link belongs to overlay.py.
"""

from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import link_proof
from brokerbed.broker.core.link import ADDRESS, INSTANCE, LINK_ID, NAME, PATH, property_of
from brokerbed.broker.core.link_proof import Challenge
from brokerbed.broker.errors import ProtocolError

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

WINDOW = 1000  # unacknowledged messages at QoS 1 and 2 on a link, in each direction
PING_S = 10  # the child sends a ping every so often, and gives up after three times that without an answer
SESSION_S = 0xFFFF_FFFF  # a link's session never expires

_CAUSES = {  # explanations for the user, by the reason code with which the parent refused the link
    0x85: "it has another child called {name}, or a session of that name that is another user's; choose another --name",
    0x86: "check user and password_file of [parent]",
    0x87: "check link_secret_file on both sides, or user and password_file or tls_cert of [parent]",
    0x8C: "it has no link_secret_file, but this broker has; for a parent that is not brokerbed say foreign = true",
}


class Introduction:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._challenge: Challenge | None = None  # set until the parent has proved that it knows the link secret
        self.is_accepted = False  # whether the parent accepted the last CONNECT
        self.refusal: str | None = None  # why the last CONNECT was not accepted, if the parent answered

    def connect_packet(self, is_first: bool) -> mqtt5.ConnectPacket:
        """The CONNECT of the link. `is_first`: the link has no session at the parent yet."""
        config = self._broker.config
        nonce, self._challenge = None, None
        self.is_accepted, self.refusal = False, None
        if config.link_secret is not None and not config.parent_is_foreign:
            nonce = link_proof.nonce(self._broker)
            self._challenge = Challenge(config.link_secret, config.name, nonce)
        properties = [(NAME, config.name), (INSTANCE, link_proof.instance(config.id_token))]
        properties += [(ADDRESS, config.address)] if config.address else []
        return mqtt5.ConnectPacket(
            LINK_ID + config.name, clean_start=is_first, session_expiry_interval=SESSION_S, receive_max=WINDOW,
            keep_alive=3 * PING_S, username=config.parent_user,
            password=config.parent_password.encode() if config.parent_password is not None else None,
            authentication_method=link_proof.METHOD if nonce is not None else None, authentication_data=nonce,
            user_properties=properties,
        )  # fmt: skip

    def own_properties(self) -> list[tuple[str, str]]:
        """How this broker introduces itself to a child, in its CONNACK."""
        config = self._broker.config
        address = [(ADDRESS, config.address)] if config.address else []
        return [(NAME, config.name), (PATH, self._broker.overlay.own_path), *address]

    def answered(self, connection: "Connection", packet: mqtt5.Packet) -> mqtt5.ConnAckPacket | None:
        """Handle the parent's answer; returns the CONNACK that accepts the link.

        If the parent asks for proof of the link secret first, the proof is sent and None is returned.
        """
        parent = f"the parent at {connection.peer}"
        if self._challenge is not None and isinstance(packet, mqtt5.AuthPacket):
            answer = self._challenge.child_answer(packet.authentication_data or b"")
            if answer is None:
                raise self._refused(f"{parent} does not know the link secret of this broker")
            self._challenge = None
            self._broker.send(connection, link_proof.auth_packet(answer))
            return None
        if not isinstance(packet, mqtt5.ConnAckPacket):
            raise self._refused(f"{parent} does not answer as an MQTT broker does")
        if code := int(packet.reason_code):
            cause = _CAUSES.get(code, packet.reason_code.name.lower().replace("_", " "))
            explanation = cause.format(name=self._broker.config.name)
            raise self._refused(f"{parent} refuses the link: {explanation} (reason code 0x{code:02x})")
        if self._challenge is not None:
            raise self._refused(f"{parent} did not prove that it knows the link secret")
        config, algorithm = self._broker.config, self._broker.overlay.algorithm
        is_foreign = config.parent_is_foreign or property_of(packet.user_properties, NAME) is None
        if is_foreign and not algorithm.accepts_foreign_parent:
            raise self._refused(
                f"{parent} is another kind of broker, and {algorithm.name} routing needs a brokerbed one"
            )
        expected = self._broker.overlay.moved_to
        if expected is not None and expected.peer != property_of(packet.user_properties, NAME):
            raise self._refused(f"{parent} is not {expected.peer}, to which the link of this broker has moved")
        self.is_accepted = True
        return packet

    def _refused(self, why: str) -> ProtocolError:
        self.refusal = why
        return ProtocolError(why)
