"""How both ends of a link prove that they know the link secret (MQTT 5 enhanced authentication, section 4.12).

The child's CONNECT carries a nonce, the parent's AUTH carries the parent's nonce and proof, and the child's AUTH
carries the child's proof. A proof is an HMAC over the role, both nonces and the child's name, so it cannot be used in
any other exchange or in the other direction. The secret itself is never sent.
"""

import hashlib
import hmac
from typing import TYPE_CHECKING

import mqtt5

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

METHOD = "brokerbed-link"
NONCE_BYTES = 16
SECRET_BYTES_MIN = 16  # a shorter secret could be found by brute force
PARENT, CHILD = b"parent", b"child"


class Challenge:
    """One exchange, at either end: it holds everything that the two proofs are computed from."""

    __slots__ = ("_child_nonce", "_name", "_parent_nonce", "_secret")

    def __init__(self, secret: bytes, name: str, child_nonce: bytes, parent_nonce: bytes = b"") -> None:
        self._secret = secret
        self._name = name.encode()
        self._child_nonce = child_nonce
        self._parent_nonce = parent_nonce

    def parent_answer(self) -> bytes:
        """The authentication data of the parent's AUTH."""
        return self._parent_nonce + self._proof(PARENT)

    def child_answer(self, parent_answer: bytes) -> bytes | None:
        """The authentication data of the child's AUTH; None if the parent has not proved that it knows the secret."""
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
    """A nonce that was never used before and that nobody can guess without the broker's token."""
    broker.nonces_made += 1
    return hashlib.sha256(f"{broker.config.id_token}/nonce/{broker.nonces_made}".encode()).digest()[:NONCE_BYTES]


def instance(id_token: str) -> str:
    """The id with which a broker's process identifies itself to its parent, to distinguish two of the same name."""
    return hashlib.sha256(f"{id_token}/instance".encode()).hexdigest()[:32]
