"""One connection as the core sees it: the input received so far, and the output that the driver has to write."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core.run import OBJECT, V311

if TYPE_CHECKING:
    from brokerbed.broker.core.link_proof import Challenge
    from brokerbed.broker.core.session import Session
    from brokerbed.broker.core.timers import Timer

PACKET_BYTES_ANY = 268_435_460  # the largest packet that MQTT allows, hence no maximum packet size


class Connection:
    """A connection from a client or a child, or to the parent.

    `output` is what the driver writes next: bytes, or packets on a simulated network (`is_wire` is False).
    """

    __slots__ = (
        "aliases",
        "aliases_max",
        "aliases_out",
        "carries_expiry",
        "certificate_name",
        "challenge",
        "decode",
        "driver",
        "encode",
        "form",
        "inflight_max",
        "is_blocked",
        "is_closing",
        "is_dirty",
        "is_local",
        "is_simple",
        "is_uplink",
        "is_waiting",
        "is_wire",
        "keep_alive_ns",
        "last_ns",
        "last_tag",
        "listener",
        "needed_bytes",
        "output",
        "packet_bytes_max",
        "parts",
        "parts_bytes",
        "peer",
        "receive_max",
        "session",
        "timer",
        "version",
        "will",
    )  # fmt: skip

    def __init__(self, now_ns: int, is_wire: bool, peer: str, is_local: bool) -> None:
        self.driver: Any = None  # the driver's own handle, which the core never uses
        self.is_wire = is_wire
        self.peer = peer
        self.is_local = is_local  # the other end is on this machine
        self.listener = ""  # the name of the listener over which it came
        self.certificate_name: str | None = None  # the name in the peer's certificate, if it had to show one
        self.session: Session | None = None  # set when CONNECT is accepted
        self.challenge: tuple[mqtt5.ConnectPacket, Challenge] | None = None  # of a link that has to prove its secret
        self.version = 0
        self.decode: Callable[[bytes], mqtt5.Packet] | None = None
        self.encode: Callable[[mqtt5.Packet], bytes] | None = None
        self.output: list[Any] = []
        self.parts: list[bytes] = []  # the bytes of an incomplete packet
        self.parts_bytes = 0
        self.needed_bytes = 0  # the incomplete packet has at least this size
        self.last_ns = now_ns  # when anything was last received
        self.keep_alive_ns = 0  # 0: there is no keep-alive timeout
        self.timer: Timer | None = None  # times out the wait for CONNECT, and later the keep-alive
        self.last_tag = b"", ""  # on a link: the properties of the last message up to its number, and its origin
        self.form = V311 if is_wire else OBJECT  # encoding of notifications at QoS 0 in both directions, see run.py
        self.carries_expiry = False  # a link of a testbed, over which the exact end of a message's time is sent
        self.is_simple = True  # the peer reads, takes no topic aliases and accepts packets of any size
        self.is_waiting = False  # the client waits for its session, which may be at another broker
        self.is_uplink = False  # this broker is the client, and the other end is its parent
        self.is_dirty = False  # the connection is in Broker.dirty, because it has output
        self.is_blocked = False  # the peer does not read fast enough
        self.is_closing = False  # the driver closes the connection once the output is written
        self.aliases: dict[int, str] = {}  # topic aliases that the client has set
        self.aliases_out: dict[str, int] = {}  # topic aliases that we have set, at most `aliases_max`
        self.aliases_max = 0
        self.receive_max = 0  # unreleased QoS 2 messages that the client may have; MQTT 5 clients are told
        self.inflight_max = 0  # the smaller of our maximum and the client's receive maximum
        self.packet_bytes_max = PACKET_BYTES_ANY
        self.will: mqtt5.Will | None = None

    def update_is_simple(self) -> None:
        """Recompute whether notifications can be written to the connection without further checks."""
        is_ordered = self.session is not None and self.session.is_ordered
        is_plain = not self.aliases_max and self.packet_bytes_max >= PACKET_BYTES_ANY
        self.is_simple = is_plain and not self.is_blocked and not is_ordered
