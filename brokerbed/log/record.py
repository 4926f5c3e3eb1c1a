"""The message log: its schema, declared once, and the buffer that a broker appends to.

A record has a fixed width, so that appending one is a single packing. Names (clients, topics) are numbered when they
first occur; a set of receivers that a topic has is numbered as a route, so that a notification to fifty subscribers is
one record. `count` records more of the same: messages `sequence` ... `sequence + count - 1` of one origin,
alike in all but that.
The broker's driver writes both buffers to files; brokerbed/log/reader.py turns them into one row per event.
"""

import json
import struct
from collections.abc import Sequence
from enum import IntEnum

FIELDS = (
    ("time_ns", "q"),  # wall or model time of the event
    ("sequence", "q"),  # the message's number at the broker where it entered; -1 where there is none
    ("origin", "i"),  # number of that broker's name (with its incarnation)
    ("subject", "i"),  # number of the client's name; -1 where there is none
    ("topic", "i"),  # number of the topic or filter
    ("route", "i"),  # number of the route for `routed`, of the publisher's message for `identified`; else -1
    ("size", "i"),  # payload bytes
    ("count", "i"),  # how many messages this record stands for
    ("kind", "B"),
    ("qos", "B"),
    ("reason", "B"),
    ("flags", "B"),  # see below
)
RECORD = struct.Struct("<" + "".join(code for _, code in FIELDS))
NUMBER_MAX = 2**31 - 1  # the largest number of a publisher's message that fits into `route`
RECORDS_FILE, NAMES_FILE = "log.{}.records", "log.{}.names"  # each life of a broker has its own pair, 1, 2, ...
MAGIC = b"brokerbed log 2\n"
CLIENTS = "clients"  # the name under which the testbed's own clients log; no broker of a scenario has it
RETAIN, DUPLICATE = 1, 2
ADDITIONAL = 4  # sent up a link below which nobody subscribes
NOT_BACK = 16  # `routed`: to all receivers of the route but the one from which it came
REPLAY = 8  # a retained message for a new subscription of a child
WAITED = 32  # it was `queued` before, or `dropped` at the input, so this does not tell that it was routed to `subject`
UNADVERTISED_FLAG = 64  # for a link, although its publisher had not advertised it: of kind `unadvertised`
NAMES_MAX = 200_000  # remembered in memory; the file has all
NAME_CHARS_MAX = 32_000_000  # of all names together that are remembered
ROUTE_RECEIVERS_MAX = 4_000_000  # of all routes together that are remembered
SHARED = tuple(range(4096))  # numbers that all logs of a process share: of a hundred logs each would have its own


class Kind(IntEnum):
    RECEIVED = 1  # a PUBLISH came from `subject`
    ROUTED = 2  # ... at QoS 0, and went at once to all receivers of `route`
    QUEUED = 3  # it waits for `subject`
    SENT = 4  # it was sent to `subject`
    ACKNOWLEDGED = 5  # `subject` took responsibility for it (QoS 1 and 2)
    DROPPED = 6  # it does not reach `subject`, for a reason
    CONNECTED = 7
    DISCONNECTED = 8
    SUBSCRIBED = 9  # `topic` is the filter
    UNSUBSCRIBED = 10
    REJECTED = 11  # refused, and the publisher was told so
    PROTOCOL_ERROR = 12  # `subject` was disconnected for it
    LINK_SUBSCRIBE = 13  # `topic`, a filter, was announced over the link `subject`, such as child>parent
    LINK_UNSUBSCRIBE = 14
    LINK_REFRESH = 16  # repeated, as every so often
    LINK_RESYNC = 15  # a change after a reconnection; flags say which. An advertisement's filter has its prefix
    PUBLISHED = 17  # by a client of the testbed, which carries the identity in the payload: made, not yet sent
    PROCESSED = 18  # ... and worked on after receipt
    STARTED = 19  # a broker begins a life; what it has in its table is `subscribed` to at once
    IDENTIFIED = 20  # the message that just entered is this one of the testbed's publisher `subject`
    FAULT = 21  # an experiment's fault strikes; `subject` says what and where, `sequence` is its number in the run
    FAULT_CONFIRMED = 22  # a probe saw its effect
    HEALED = 23
    SERVED = 25  # it is through the emulated service at the broker's input, and is routed now
    HEAL_CONFIRMED = 24  # a probe saw that all is connected and subscribed again
    ADVERTISED = 26  # `subject`, a client or a neighbour, advertises the filter `topic`
    UNADVERTISED = 27  # it does so no longer
    LINK_ADVERTISE = 28  # the filter `topic` was advertised over the link `subject`
    LINK_UNADVERTISE = 29
    NOT_ADVERTISED = 30  # a hint, once per session: `subject` has not advertised what it publishes to `topic`
    LINK_BYTES = 31  # `size` bytes crossed the direction `subject` of a link around this time
    LINK_MOVED = 33  # the broker has another parent from now on: `subject` is the new link, `topic` its parent so far
    LINK_LEAVES = 34  # what is for the parent `topic` goes to `subject`, the link to the next one, until `link_moved`
    LINK_ADOPTED = (
        35  # a child of the neighbour `topic` comes here: nothing from there goes over `subject`, its new link
    )
    LINK_SWITCHED = 36  # ... until now
    MOVED = (
        37  # a message of a session that moves was sent over the link `subject`; `route`: number of the client's name
    )
    SESSION_LEFT = 38  # the session of `subject` has moved to the neighbour `topic`, with all its messages
    SESSION_CAME = (
        39  # the session of `subject` comes from the neighbour `topic`; its filters are `subscribed` to at once
    )
    SESSION_HERE = 40  # all messages that another broker had for `subject`, whose client is connected, have come
    CONNECTING = 41  # the client `subject` connects, and waits for its session, which may be at another broker
    EXPIRES = 32  # the testbed's publisher `subject` has given the message a lifetime, which ends at this time


class Reason(IntEnum):
    NONE = 0
    OFFLINE = 1  # QoS 0 to a session that is not connected
    SLOW = 2  # QoS 0 to a connection that does not read
    QUEUE_FULL = 3
    EXPIRED = 4
    TOO_LARGE = 5  # for the client's maximum packet size
    SESSION_ENDED = 6
    NOT_AUTHORIZED = 7  # it waited in a session whose user may not read it any more, by rules that have changed
    INPUT_FULL = 8  # too many messages in the emulated service at the input: it reaches nobody, `subject` sent it
    INPUT_EXPIRED = 9  # its time was over in the emulated service at the input: likewise


class Log:
    """Records and names not yet written. A broker that keeps no log has none."""

    def __init__(self) -> None:
        self.records = bytearray()
        self.names: list[tuple[int, str]] = []
        self.routes: list[tuple[int, tuple[int, ...]]] = []
        self.numbers: dict[str, int] = {}
        self.origins: dict[str, int] = {}  # those of them that stand for origins; so few that a look is quick
        self._route_numbers: dict[tuple[int, ...], int] = {}
        self._named = 0
        self._routed = 0
        self._name_chars = 0  # of the names in `numbers`
        self._route_receivers = 0  # of the routes in `_route_numbers`

    def number(self, name: str) -> int:
        """The number of a name, given at its first occurrence."""
        number = self.numbers.get(name)
        if number is None:
            if len(self.numbers) >= NAMES_MAX or self._name_chars > NAME_CHARS_MAX:
                self.numbers.clear()
                self.origins.clear()  # a name that comes again gets another number; both stay valid
                self._name_chars = 0
            self._name_chars += len(name)
            number = self._named
            self._named += 1
            if number < len(SHARED):
                number = SHARED[number]
            self.numbers[name] = number
            self.names.append((number, name))
        return number

    def origin(self, name: str) -> int:
        number = self.origins[name] = self.number(name)
        return number

    def route(self, receivers: tuple[int, ...]) -> int:
        """The number of a set of receivers."""
        number = self._route_numbers.get(receivers)
        if number is None:
            if len(self._route_numbers) >= NAMES_MAX or self._route_receivers > ROUTE_RECEIVERS_MAX:
                self._route_numbers.clear()
                self._route_receivers = 0
            self._route_receivers += len(receivers)
            number = self._route_numbers[receivers] = self._routed
            self._routed += 1
            self.routes.append((number, receivers))
        return number

    def add(
        self, time_ns: int, kind: int, subject: int, topic: int = -1, sequence: int = -1, size: int = 0, qos: int = 0,
        reason: int = 0, flags: int = 0, origin: int = -1, route: int = -1,
    ) -> None:  # fmt: skip
        self.records += RECORD.pack(time_ns, sequence, origin, subject, topic, route, size, 1, kind, qos, reason, flags)

    def take(self) -> tuple[list[tuple[int, str]], list[tuple[int, tuple[int, ...]]], bytearray]:
        """What there is to write; the buffers are empty afterwards."""
        taken = self.names, self.routes, self.records
        self.names, self.routes, self.records = [], [], bytearray()
        return taken


def name_line(number: int, name: str) -> str:
    """A name in the file of names."""
    return json.dumps({"name": number, "is": name})


def route_line(number: int, receivers: Sequence[int]) -> str:
    return json.dumps({"route": number, "to": list(receivers)})
