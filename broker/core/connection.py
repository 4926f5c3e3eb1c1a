"""One client's connection as the core sees it: what came in so far, what is to go out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core.run import OBJECT, V311

if TYPE_CHECKING:
    from brokerbed.broker.core.link_proof import Challenge
    from brokerbed.broker.core.session import Session
    from brokerbed.broker.core.timers import Timer

PACKET_BYTES_ANY = 268_435_460  # no maximum packet size: larger than any packet of MQTT


class Connection:
    """`output` is what the driver writes next: bytes, or packets on a simulated network (`is_wire` False)."""

    __slots__ = (
        "aliases",
        "aliases_max",
        "aliases_out",
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
        "is_wire",
        "keep_alive_ns",
        "last_ns",
        "output",
        "packet_bytes_max",
        "parts",
        "parts_bytes",
        "peer",
        "receive_max",
        "session",
        "tag",
        "timer",
        "version",
        "wanted_bytes",
        "will",
    )  # fmt: skip

    def __init__(self, now_ns: int, is_wire: bool, peer: str, is_local: bool) -> None:
        self.driver: Any = None  # the driver's own handle; the core never looks at it
        self.is_wire = is_wire
        self.peer = peer
        self.is_local = is_local  # the other side is on this machine
        self.session: Session | None = None  # set by CONNECT
        self.challenge: tuple[mqtt5.ConnectPacket, Challenge] | None = None  # a link that has not proved itself yet
        self.version = 0
        self.decode: Callable[[bytes], mqtt5.Packet] | None = None
        self.encode: Callable[[mqtt5.Packet], bytes] | None = None
        self.output: list[Any] = []
        self.parts: list[bytes] = []  # the beginning of a packet whose end has not come yet
        self.parts_bytes = 0
        self.wanted_bytes = 0  # it cannot be complete before there are so many
        self.last_ns = now_ns  # when something was last received
        self.keep_alive_ns = 0  # 0: never ends
        self.timer: Timer | None = None  # that ends it unless CONNECT comes, or later unless anything comes
        self.tag = b"", ""  # on a link: how the identity of the last message began, and its origin
        self.form = V311 if is_wire else OBJECT  # of notifications at QoS 0 in and out
        self.is_simple = True  # it reads, knows no aliases and takes packets of any size
        self.is_uplink = False  # we are the client, and the other side is our parent
        self.is_dirty = False  # it is in the broker's list of connections with output
        self.is_blocked = False  # the other side does not read fast enough
        self.is_closing = False  # to be closed as soon as the output is written
        self.aliases: dict[int, str] = {}  # topic aliases that the client has set
        self.aliases_out: dict[str, int] = {}  # topic aliases that we have set, at most `aliases_max`
        self.aliases_max = 0
        self.receive_max = 0  # messages at QoS 2 that it may have open with us, as it was told
        self.inflight_max = 0  # min(our maximum, the client's receive maximum)
        self.packet_bytes_max = PACKET_BYTES_ANY
        self.will: mqtt5.Will | None = None

    def look(self) -> None:
        """Something has changed that tells whether notifications may just be put out."""
        self.is_simple = not self.is_blocked and not self.aliases_max and self.packet_bytes_max >= PACKET_BYTES_ANY
