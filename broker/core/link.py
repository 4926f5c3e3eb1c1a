"""One end of an overlay link: the neighbour, what was exchanged with it, and the names that only links may use.

A message keeps one identity on its whole way: its origin, which is the name of the broker at which it entered and how
often that broker was started, and its number there. Over a link the identity is a user property in which the number has
a fixed width, so that the messages of a run differ in known places only.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.routing.filters import FilterIndex
from brokerbed.broker.values import LONG_AGO_NS, Entry

if TYPE_CHECKING:
    from brokerbed.broker.core.announcements import Announcements
    from brokerbed.broker.core.session import Session

LINK_ID = "$link/"  # client ids of links begin with this, and no other client may use such an id
NAME_BYTES_MAX = 64  # length of a broker's name
ORIGIN_BYTES_MAX = 90  # name, dot and incarnation; with more, the property length would no longer fit into one byte
RESERVED = "overlay-"  # user properties that begin with this are for links only
NAME, INSTANCE, IDENTITY, PATH = "overlay-name", "overlay-instance", "overlay-identity", "overlay-path"
ADDRESS = "overlay-address"  # where a broker listens for links, HOST:PORT
MESSAGE = "overlay-message"  # the identity of a message
RESYNCS = "overlay-resync"  # marks a (un)subscription that only resynchronises routing tables
UNADVERTISED_MESSAGE = "overlay-unadvertised"  # marks a message that its publisher has not advertised
RETAINED_FOR = "overlay-retained"  # marks a retained message that answers a new subscription, with its filter
OVERLAY = "$overlay/"  # topics of messages from a parent that are for the child broker itself
PATH_TOPIC = OVERLAY + "path"  # for messages with the parent's name and its ancestors
ENTRY_TOPIC = OVERLAY + "entry"  # for messages with an entry that the parent announces or withdraws
MOVE_TOPIC = OVERLAY + "move"  # for notices about links and sessions that move; both ends of a link send them
NOTIFICATION, SUBSCRIBE, UNSUBSCRIBE = "notification", "subscribe", "unsubscribe"  # kinds of messages on links
ADVERTISE, UNADVERTISE, UNADVERTISED = "advertise", "unadvertise", "unadvertised"
REFRESH, RESYNC, RETAINED = "refresh", "resync", "retained"
SESSION_MESSAGE = "moved"  # a message of a session that moves, see session_moves.py
KINDS = (
    NOTIFICATION, SUBSCRIBE, UNSUBSCRIBE, ADVERTISE, UNADVERTISE, UNADVERTISED, REFRESH, RESYNC, RETAINED,
    SESSION_MESSAGE,
)  # fmt: skip
ADDRESS_CHARS_MAX = 262  # a host name has at most 255 characters, and a port 5 digits
DIGITS = 16  # decimal digits of a message's number in its identity
PACKET_IDS = 65_535  # packet ids are 1 ... 65 535, section 2.2.1
EVERYBODY = "*"  # no name of a broker; see Link.skips
RECENT_MAX = 2000  # message identities remembered per foreign peer: twice the window of a link
_TAG_START = b"\x26" + len(MESSAGE).to_bytes(2, "big") + MESSAGE.encode()  # identifier and name of the user property


class Link:
    __slots__ = (
        "address", "advertised", "advertised_index", "announced", "came_from", "claims_queued", "entries",
        "entry_index", "entry_rows", "hands_over", "has_moved", "instance", "is_foreign", "is_known", "is_parent",
        "is_silent", "is_successor", "last_received_id", "lost_ns", "moved_open", "moves_to", "peer", "received",
        "recent_messages", "sent", "skips", "staged",
        "staged_floor_ns", "staged_free_ns", "successor",
    )  # fmt: skip

    announced: "Announcements"  # the entries announced to the neighbour; set by Overlay.open_link

    def __init__(self, peer: str, is_parent: bool, is_indexed: bool = False) -> None:
        """`is_indexed`: the algorithm lets entries disappear without a message, and so they have to be found."""
        self.peer = peer
        self.is_parent = is_parent
        self.is_foreign = False  # the other end is not a brokerbed broker
        self.address = ""  # where the neighbour listens, HOST:PORT, if it has said so
        self.lost_ns: int | None = None  # when the connection was last lost; None: not since this broker started
        self.instance = ""  # identifies the peer's process, see link_proof.instance
        self.entries: dict[Entry, int] = {}  # entry from the neighbour -> when it was last announced; oldest first
        self.advertised: dict[Entry, int] = {}  # likewise: its advertisements, and its answers to ours
        self.entry_index = FilterIndex() if is_indexed else None  # the filters in `entries`
        self.advertised_index = FilterIndex() if is_indexed else None  # the filters that the neighbour advertises
        self.staged: dict[Any, None] = {}  # deliveries in the emulated service at the link's output, before its queue
        self.staged_free_ns: dict[str, int] = {}  # copy -> when the emulated service at the link has no more work
        self.staged_floor_ns = LONG_AGO_NS  # nothing leaves that service earlier, because it would overtake a notice
        self.sent = dict.fromkeys(KINDS, 0)  # messages sent, by kind
        self.received = dict.fromkeys((NOTIFICATION, RETAINED), 0)  # messages from a foreign peer, which counts none
        self.entry_rows: dict[Entry, int] = {}  # entry from the neighbour -> number of its row in the store
        self.last_received_id = 0  # the newest packet id that the peer has used towards us; 0: none so far
        self.recent_messages: dict[tuple[str, int], None] = {}  # identities of the last messages from a foreign peer
        # While a link moves, see link_moves.py:
        self.is_silent = False  # nothing is announced over the link any more, because it is about to end
        self.successor: Session | None = None  # of the link to a parent: what is for that parent waits here
        self.is_successor = False  # it is the link to the next parent
        self.has_moved = False  # it is a link to a parent that took the place of another one
        self.moves_to = ""  # of a child: its next parent, from the beginning of the move to its end
        self.came_from = ""  # of a child that has not connected here yet: its parent so far
        self.skips = ""  # a neighbour that still sends to the child itself, so that nothing from there is passed on;
        # or EVERYBODY: the child has another parent now
        self.hands_over = ""  # the child that the neighbour is about to move to this broker
        # While sessions move over the link, see session_moves.py and session_claims.py:
        self.is_known = True  # it has been connected, or the neighbour has said that it will be
        self.moved_open = 0  # messages of such sessions that the neighbour has not acknowledged
        self.claims_queued = 0  # claims that wait because the link is down

    @property
    def is_moving(self) -> bool:
        """Whether the link is about to end, because it moves. Nothing else should be sent over it."""
        return self.is_silent or self.successor is not None or self.is_successor or bool(self.moves_to)

    def table(self, entry: Entry) -> dict[Entry, int]:
        """The table to which an entry from the neighbour belongs."""
        return self.entries if entry.is_interest else self.advertised

    def lost(self, now_ns: int) -> None:
        """The link is down."""
        self.lost_ns = now_ns
        self.announced.lost()

    def renew(self, now_ns: int) -> None:
        """The link is up: what the neighbour has announced is stale only if it is not repeated from now on."""
        for table in (self.entries, self.advertised):
            table.update(dict.fromkeys(table, now_ns))

    def is_known_copy(self, origin: str, sequence: int) -> bool:
        """Whether a foreign peer has sent this message before. The message is remembered for the next call."""
        identity = origin, sequence
        is_known = identity in self.recent_messages
        self.recent_messages[identity] = None
        if len(self.recent_messages) > RECENT_MAX:
            del self.recent_messages[next(iter(self.recent_messages))]
        return is_known

    def has_received(self, packet_id: int) -> bool:
        """Whether a packet with this id, now sent again by a brokerbed broker, arrived before the link was cut.

        Our brokers assign packet ids in the order of sending, to packets of all kinds and across restarts, and a link
        delivers packets in that order. So everything up to the newest id has arrived, and nothing after it. Ids wrap
        around, and far fewer than half of them are ever unacknowledged.
        """
        behind = (self.last_received_id - packet_id) % PACKET_IDS
        return self.last_received_id != 0 and behind < PACKET_IDS // 2


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT; None if the text is not an address. The host may be IPv6 in brackets."""
    host, _, port = text.rpartition(":")
    is_address = host and port.isascii() and port.isdigit() and len(text) <= ADDRESS_CHARS_MAX and 0 < int(port) < 65536
    return (host.strip("[]"), int(port)) if is_address else None


def stated_address(properties: list[tuple[str, str]]) -> str:
    """Where a neighbour says that it listens; empty if it does not say so, or nothing that could be meant."""
    address = property_of(properties, ADDRESS) or ""
    return address if split_address(address) else ""


def property_of(properties: list[tuple[str, str]], name: str) -> str | None:
    for key, value in properties:  # a generator would cost more than most packets' properties, which are none
        if key == name:
            return value
    return None


def is_reserved(properties: "list[tuple[str, str]] | tuple[tuple[str, str], ...]") -> bool:
    """Whether any of the user properties is reserved for links."""
    return bool(properties) and any(key.startswith(RESERVED) for key, _ in properties)


def tag(origin: str, sequence: int) -> str:
    """A message's identity as the value of its user property."""
    return f"{origin}.{sequence:016d}"


def untag(value: str) -> tuple[str, int]:
    """The origin and number in an identity; raises ProtocolError if the value is not an identity."""
    origin, _, number = value.rpartition(".")
    is_origin = 0 < len(origin) <= ORIGIN_BYTES_MAX and origin.isascii()
    if not is_origin or len(number) != DIGITS or not (number.isascii() and number.isdigit()):
        raise ProtocolError("an identity of a message that no broker gives")
    return origin, int(number)


@lru_cache(maxsize=10_000)
def tag_head(origin: str) -> bytes:
    """The encoded properties of a message that has only its identity, up to the digits of its number."""
    value_size = len(origin.encode()) + 1 + DIGITS
    properties = _TAG_START + value_size.to_bytes(2, "big") + origin.encode() + b"."
    return (len(properties) + DIGITS).to_bytes(1, "big") + properties


def tag_only(data: bytes, at: int) -> tuple[str, int, int] | None:
    """The origin, the number and where the properties at `at` end, if they consist of a message's identity only."""
    if not data.startswith(_TAG_START, at + 1):
        return None
    value_at = at + 1 + len(_TAG_START) + 2
    end = value_at + int.from_bytes(data[value_at - 2 : value_at], "big")
    dot = end - DIGITS - 1
    if data[at] >= 0x80 or end != at + 1 + data[at] or data[dot : dot + 1] != b"." or not data[dot + 1 : end].isdigit():
        return None
    origin = data[value_at:dot]
    return (origin.decode(), int(data[dot + 1 : end]), end) if origin.isascii() and origin else None
