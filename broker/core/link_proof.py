"""How both ends of a link prove that they know the link secret (MQTT 5 enhanced authentication, section 4.12).

The child's CONNECT carries a nonce, the parent's AUTH a nonce of its own and the parent's proof, the child's AUTH the
child's proof. A proof is an HMAC over the role, both nonces and the child's name, so it is of no use in any other
exchange or in the other direction. The secret itself never travels.
"""

import hashlib
import hmac
from typing import TYPE_CHECKING

import mqtt5

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

METHOD = "brokerbed-link"
NONCE_BYTES = 16
SECRET_BYTES_MIN = 16  # a shorter secret could be found by trying
PARENT, CHILD = b"parent", b"child"


class Challenge:
    """One exchange as the end that began it or answers it sees it: what both proofs are made from."""

    __slots__ = ("_child_nonce", "_name", "_parent_nonce", "_secret")

    def __init__(self, secret: bytes, name: str, child_nonce: bytes, parent_nonce: bytes = b"") -> None:
        self._secret = secret
        self._name = name.encode()
        self._child_nonce = child_nonce
        self._parent_nonce = parent_nonce

    def parent_answer(self) -> bytes:
        """What the parent's AUTH carries."""
        return self._parent_nonce + self._proof(PARENT)

    def child_answer(self, parent_answer: bytes) -> bytes | None:
        """What the child's AUTH carries; None if the parent has not proved that it knows the secret."""
        self._parent_nonce = parent_answer[:NONCE_BYTES]
        is_proven = hmac.compare_digest(parent_answer[NONCE_BYTES:], self._proof(PARENT))
        return self._proof(CHILD) if is_proven else None

    def accepts(self, child_answer: bytes) -> bool:
        """Whether the child has proved that it knows the secret."""
        return hmac.compare_digest(child_answer, self._proof(CHILD))

    def _proof(self, role: bytes) -> bytes:
        message = b"\0".join((role, self._name, self._child_nonce, self._parent_nonce))
        return hmac.digest(self._secret, message, "sha256")


def auth_packet(answer: bytes) -> mqtt5.AuthPacket:
    code = mqtt5.AuthReasonCode.CONTINUE_AUTHENTICATION
    return mqtt5.AuthPacket(reason_code=code, authentication_method=METHOD, authentication_data=answer)


def nonce(broker: "Broker") -> bytes:
    """Never used before, and not to be guessed by anybody who does not know the broker's token."""
    broker.nonces += 1
    return hashlib.sha256(f"{broker.config.id_token}/nonce/{broker.nonces}".encode()).digest()[:NONCE_BYTES]


def instance(id_token: str) -> str:
    """What a broker's process calls itself towards its parent, so that two of one name are told apart."""
    return hashlib.sha256(f"{id_token}/instance".encode()).hexdigest()[:32]
