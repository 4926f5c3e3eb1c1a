"""One end of an overlay link: who is at the other end, what was sent to it, and what only links may say.

A message has one identity on its whole way: the broker at which it entered (its name and how often it was started) and
its number there. Over a link it travels as a user property with a number of fixed width, so that a run of messages
differs in known places only.
"""

from functools import lru_cache
from typing import Any

from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.values import Entry

LINK_ID = "$link/"  # client ids of links begin so, and no other client may use such an id
NAME_BYTES_MAX = 64  # of a broker's name
ORIGIN_BYTES_MAX = 90  # a name, a dot and which life it is; with more, the length of the properties has two bytes
RESERVED = "overlay-"  # user properties that begin so are for links only
NAME, INSTANCE, IDENTITY, PATH = "overlay-name", "overlay-instance", "overlay-identity", "overlay-path"
MESSAGE = "overlay-message"  # the identity of a message
RESYNCS = "overlay-resync"  # an (un)subscription that tells again how things are
RETAINED_FOR = "overlay-retained"  # a retained message that answers a new subscription to this filter
PATH_TOPIC = "$overlay/path"  # a parent tells its children of its ancestors
NOTIFICATION, SUBSCRIBE, UNSUBSCRIBE = "notification", "subscribe", "unsubscribe"  # kinds of messages on links
REFRESH, RESYNC, RETAINED = "refresh", "resync", "retained"
KINDS = (NOTIFICATION, SUBSCRIBE, UNSUBSCRIBE, REFRESH, RESYNC, RETAINED)
DIGITS = 16  # of a message's number as it travels
PACKET_IDS = 65_535  # 1 ... 65 535, section 2.2.1
RECENT_MAX = 2000  # messages remembered by identity, twice the window of a link
_TAG_START = b"\x26" + len(MESSAGE).to_bytes(2, "big") + MESSAGE.encode()  # a user property and its name


class Link:
    __slots__ = (
        "entries", "entry_numbers", "instance", "is_foreign", "is_parent", "last_received_id", "peer", "received",
        "recent", "sent", "staged", "staged_free_ns",
    )  # fmt: skip

    def __init__(self, peer: str, is_parent: bool) -> None:
        self.peer = peer
        self.is_parent = is_parent
        self.is_foreign = False  # the other end is no broker of ours
        self.instance = ""  # of the peer's process, as it says
        self.entries: dict[Entry, int] = {}  # at a parent: what the child has told and when it last did, oldest first
        self.staged: dict[Any, None] = {}  # deliveries in the emulated service at the link's output, before its queue
        self.staged_free_ns: dict[str, int] = {}  # that is busy until then, by copy
        self.sent = dict.fromkeys(KINDS, 0)
        self.received = dict.fromkeys((NOTIFICATION, RETAINED), 0)  # counted for a foreign peer, which does not count
        self.entry_numbers: dict[Entry, int] = {}  # of the rows that the entries have in the store
        self.last_received_id = 0  # the newest packet id that the peer has used towards us; 0: none so far
        self.recent: dict[tuple[str, int], None] = {}  # identities of messages that came from a foreign peer

    def is_known_copy(self, origin: str, sequence: int) -> bool:
        """Whether a foreign peer has sent this message before."""
        identity = origin, sequence
        is_known = identity in self.recent
        self.recent[identity] = None
        if len(self.recent) > RECENT_MAX:
            del self.recent[next(iter(self.recent))]
        return is_known

    def has_received(self, packet_id: int) -> bool:
        """Whether a packet with this id, now sent again by one of our brokers, arrived before the link was cut.

        Our brokers take packet ids in the order of sending, for packets of all kinds, across restarts too, and what
        arrives is always the beginning of what was sent. So everything up to the newest id has arrived, and nothing
        after it. Ids are reused in a circle; far fewer than half of them are ever unacknowledged.
        """
        behind = (self.last_received_id - packet_id) % PACKET_IDS
        return self.last_received_id != 0 and behind < PACKET_IDS // 2


class Known:
    """Something that the parent knows; while it has not acknowledged what it was told last, it may or may not."""

    __slots__ = ("number", "open_id")

    def __init__(self) -> None:
        self.open_id = 0  # the packet with which it was told last, until that is acknowledged
        self.number = 0  # of the row in the store


def property_of(properties: list[tuple[str, str]], name: str) -> str | None:
    return next((value for key, value in properties if key == name), None)


def is_reserved(properties: "list[tuple[str, str]] | tuple[tuple[str, str], ...]") -> bool:
    """Whether an ordinary client uses what only links may."""
    return any(key.startswith(RESERVED) for key, _ in properties)


def tag(origin: str, sequence: int) -> str:
    """A message's identity as it travels."""
    return f"{origin}.{sequence:016d}"


def untag(value: str) -> tuple[str, int]:
    """Origin and number; ProtocolError if a peer sent something else."""
    origin, _, number = value.rpartition(".")
    is_origin = 0 < len(origin) <= ORIGIN_BYTES_MAX and origin.isascii()
    if not is_origin or len(number) != DIGITS or not (number.isascii() and number.isdigit()):
        raise ProtocolError("an identity of a message that no broker gives")
    return origin, int(number)


@lru_cache(maxsize=10_000)
def tag_head(origin: str) -> bytes:
    """The properties of a message that has no others than its identity, up to the digits."""
    value_size = len(origin.encode()) + 1 + DIGITS
    properties = _TAG_START + value_size.to_bytes(2, "big") + origin.encode() + b"."
    return (len(properties) + DIGITS).to_bytes(1, "big") + properties


def tag_only(data: bytes, at: int) -> tuple[str, int, int] | None:
    """Origin, number and end of the properties at `at`, if they are a message's identity and nothing else."""
    if not data.startswith(_TAG_START, at + 1):
        return None
    value_at = at + 1 + len(_TAG_START) + 2
    end = value_at + int.from_bytes(data[value_at - 2 : value_at], "big")
    dot = end - DIGITS - 1
    if data[at] >= 0x80 or end != at + 1 + data[at] or data[dot : dot + 1] != b"." or not data[dot + 1 : end].isdigit():
        return None
    origin = data[value_at:dot]
    return (origin.decode(), int(data[dot + 1 : end]), end) if origin.isascii() and origin else None
