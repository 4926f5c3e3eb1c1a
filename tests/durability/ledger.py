"""What was published, acknowledged and received, and what of it breaks a promise. Knows no sockets and no processes.

A stream is what one publisher sends to one topic at one QoS, numbered from 0: the unit in which MQTT keeps order. A
payload says which message of which stream it is, so nothing has to be remembered to judge what a subscriber gets. It
begins as those of the testbed do, with publisher and number, which a broker of the testbed notes in its log.

Three kinds of readers are judged. One that stays must get everything that was acknowledged. Of the members of a group,
which share a subscription, one must. A visitor, whose session ends now and then, must get everything between the first
and the last message of a stream that came to one session.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

FILLER_EVERY, FILLER_BYTES = 40, 3000  # every so many messages one is larger than a page
RANGES_SHOWN = 5  # of the numbers that a violation names


class Kind(Enum):
    """What can go wrong."""

    LOST = "acknowledged to the publisher and never delivered"
    DISORDER = "delivered for the first time after a later message of its stream"
    TWICE = "delivered more than once at QoS 0 or 2"
    UNMARKED = "delivered again without DUP, though the publisher did not send it again at QoS 1"
    REPEATED = "sent again on the same connection"
    REUSED = "a packet id that was not released, for another message"
    CONTENT = "a message that nobody published so"
    STALE = "the retained message of a topic is not the last one"
    SESSION = "the broker forgot a session"
    DAMAGED = "a broker found its store damaged and set it aside"
    ANSWER = "an acknowledgement or refusal that nothing explains"
    CLOSED = "a connection ended while its broker was running"
    ENDED = "a broker ended on its own or does not answer"
    UNFINISHED = "not done when the time was up"


@dataclass(frozen=True)
class Violation:
    kind: Kind
    count: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name} x {self.count} ({self.kind.value}): {self.what}"


@dataclass
class Stream:
    publisher: str
    topic: str
    qos: int
    place: str  # the broker of its publisher
    index: int
    is_retained: bool = False
    published: int = 0
    promised: int = 0  # from this number on: subscriptions made before it are known everywhere
    acknowledged: bytearray = field(default_factory=bytearray)  # a byte for each number
    resent: Counter[int] = field(default_factory=Counter)  # number -> how often the publisher sent it again

    @property
    def last_acknowledged(self) -> int:
        return self.acknowledged.rfind(1)

    def __post_init__(self) -> None:
        self.key = self.publisher.encode(), f"{self.topic} {self.qos}".encode()

    def payload(self, number: int) -> bytes:
        filler = b"." * FILLER_BYTES if number % FILLER_EVERY == 0 else b""
        return b"%b %d %b|%b" % (self.key[0], number, self.key[1], filler)


@dataclass
class Receipts:
    """What one subscriber got of one stream."""

    plain: bytearray = field(default_factory=bytearray)  # for each number, how often without DUP
    marked: bytearray = field(default_factory=bytearray)  # ... and with it
    first: int = 0  # messages received at least once, of those promised
    promised: int = 0
    highest: int = -1
    began: int = -1  # the number that came first
    late: list[int] = field(default_factory=list)  # received for the first time after a higher number

    def add(self, number: int, is_marked: bool) -> None:
        if number >= len(self.plain):
            more = bytes(number + 1 - len(self.plain))
            self.plain += more
            self.marked += more
        if not self.plain[number] and not self.marked[number]:
            self.first += number >= self.promised
            if number < self.highest:
                self.late.append(number)
            else:
                self.highest = number
            if self.began < 0:
                self.began = number
        counts = self.marked if is_marked else self.plain
        counts[number] = min(255, counts[number] + 1)

    def times(self, number: int) -> int:
        return self.plain[number] + self.marked[number] if number < len(self.plain) else 0


@dataclass
class Reader:
    """One subscriber as the ledger sees it."""

    name: str
    filters: Sequence[str]
    qos: int
    place: str  # its broker
    group: str = ""  # whose members share the subscription
    is_visitor: bool = False
    receipts: dict[int, Receipts] = field(default_factory=dict)  # by the stream's index, for those it subscribed to
    floors: dict[int, int] = field(default_factory=dict)  # by stream: the last one acknowledged when it subscribed
    retained: dict[int, int] = field(default_factory=dict)  # by stream: the last one that came as retained


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter with + or a final # matches a topic; the rules for $ are not needed here."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(it in ("+", level) for it, level in zip(wanted, levels, strict=True))


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order for people: 3-7, 9."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:RANGES_SHOWN]]
    return ", ".join(shown) + (", ..." if len(runs) > RANGES_SHOWN else "")


class Ledger:
    def __init__(self, streams: Sequence[Stream], readers: Sequence[Reader], links_repeat: bool = True) -> None:
        """`links_repeat`: a link between brokers may send a message at QoS 1 again, as any sender at QoS 1 may."""
        self._links_repeat = links_repeat
        self.streams = streams
        self.readers = readers
        self._by_key = {stream.key: stream for stream in streams}
        self._notes: dict[tuple[Kind, str], list[str]] = {}  # (kind, who) -> what happened
        self._past: list[Violation] = []  # in sessions of visitors that have ended
        self.discarded = 0  # not acknowledged, and given up with a session that the broker forgot
        self.receipts = 0
        self.sessions_ended = 0
        self._groups = {
            it.group: Reader(f"group {it.group}", it.filters, it.qos, it.place) for it in readers if it.group
        }
        self._owed_to = [it for it in readers if not it.group and not it.is_visitor] + list(self._groups.values())
        for reader in (*readers, *self._groups.values()):
            reader.receipts = {it.index: Receipts() for it in streams if _wants(reader, it)}

    # -- what the clients tell ----------------------------------------------------------------------------------

    def published(self, stream: Stream) -> tuple[int, bytes]:
        """The next message of a stream: its number and its payload."""
        number = stream.published
        stream.published += 1
        stream.acknowledged.append(0)
        return number, stream.payload(number)

    def acknowledged(self, stream: Stream, number: int) -> None:
        stream.acknowledged[number] = 1

    def received(
        self, reader: Reader, topic: str, payload: bytes, qos: int, is_marked: bool, is_retained: bool = False
    ) -> None:
        """A subscriber's application gets a message; `is_retained`: because of its new subscription."""
        self.receipts += 1
        publisher, _, rest = payload.partition(b"|")[0].partition(b" ")
        digits, _, what = rest.partition(b" ")
        stream = self._by_key.get((publisher, what))
        number = int(digits) if digits.isdigit() else -1
        if stream is None or topic != stream.topic or not 0 <= number < stream.published:
            self.note(Kind.CONTENT, reader.name, f"{topic}: {payload[:60]!r}")
        elif payload != stream.payload(number) or qos != min(stream.qos, reader.qos):
            self.note(Kind.CONTENT, reader.name, f"{topic} at QoS {qos}: {payload[:60]!r}, {len(payload)} bytes")
        elif stream.index not in reader.receipts:
            self.note(Kind.CONTENT, reader.name, f"{topic} is not what it subscribed to")
        elif is_retained:
            self._received_retained(reader, stream, number)
        else:
            reader.receipts[stream.index].add(number, is_marked)
            if reader.group:
                self._groups[reader.group].receipts[stream.index].add(number, is_marked)

    def _received_retained(self, reader: Reader, stream: Stream, number: int) -> None:
        reader.retained[stream.index] = number
        if not stream.is_retained:
            self.note(Kind.CONTENT, reader.name, f"{stream.topic} is retained, which nobody asked for")
        elif stream.place == reader.place and number < reader.floors[stream.index]:
            told = f"{stream.topic}: {number}, though {reader.floors[stream.index]} was acknowledged"
            self.note(Kind.STALE, reader.name, told)

    def subscribing(self, reader: Reader) -> None:
        """A subscriber is about to subscribe, and then gets what is retained."""
        reader.floors = {it.index: it.last_acknowledged for it in self.streams if it.is_retained}

    def session_began(self, reader: Reader) -> None:
        """A visitor has a new session: what it got in the one before is judged."""
        if any(it.highest >= 0 for it in reader.receipts.values()):
            self.sessions_ended += 1
        self._past += self._judged_visit(reader)
        reader.receipts = {index: Receipts() for index in reader.receipts}

    def promise(self) -> None:
        """From now on every message that is acknowledged must arrive."""
        for stream in self.streams:
            stream.promised = stream.published
        for reader in (*self.readers, *self._groups.values()):
            for index, receipts in reader.receipts.items():
                receipts.promised, receipts.first = self.streams[index].published, 0

    def note(self, kind: Kind, who: str, what: str) -> None:
        """Something happened that must not."""
        self._notes.setdefault((kind, who), []).append(what)

    # -- what it comes to ---------------------------------------------------------------------------------------

    def is_joined(self) -> bool:
        """Whether every subscriber has got something of every stream that it subscribed to."""
        return all(receipts.first for reader in self._owed_to for receipts in reader.receipts.values())

    def missing_retained(self, reader: Reader) -> list[str]:
        """Topics of which a reader that has just subscribed has not got the last message, though all are acknowledged."""
        return [
            f"{it.topic}: {reader.retained.get(it.index)}, not {it.published - 1}"
            for it in self.streams
            if it.is_retained and it.qos and it.index in reader.receipts
            if reader.retained.get(it.index) != it.published - 1
        ]

    def is_settled(self) -> bool:
        """Whether as much has been delivered as was acknowledged. Not known once messages were given up."""
        return not self.discarded and self.delivered() >= self.expected()

    def published_messages(self) -> int:
        """At QoS 1 and 2."""
        return sum(stream.published - stream.promised for stream in self.streams if stream.qos)

    def acknowledged_messages(self) -> int:
        return sum(map(_acknowledged, self.streams))

    def resent_messages(self) -> int:
        return sum(stream.resent.total() for stream in self.streams)

    def expected(self) -> int:
        """Deliveries that are owed for what was acknowledged."""
        return sum(_acknowledged(stream) for _, stream, _ in self._promises())

    def delivered(self) -> int:
        return sum(receipts.first for _, _, receipts in self._promises())

    def _promises(self) -> Iterator[tuple[Reader, Stream, Receipts]]:
        """Who is to get what: at QoS 0 nobody is promised anything."""
        for reader in self._owed_to:
            for index, receipts in reader.receipts.items():
                if min(reader.qos, self.streams[index].qos):
                    yield reader, self.streams[index], receipts

    def violations(self) -> list[Violation]:
        found = [
            Violation(kind, len(events), f"{who}: {events[0]}{' ...' if len(events) > 1 else ''}")
            for (kind, who), events in self._notes.items()
        ]
        found += self._past
        for reader in self._owed_to:
            for index, receipts in reader.receipts.items():
                found += self._judged(reader, self.streams[index], receipts)
        for reader in self.readers:
            if reader.is_visitor:
                found += self._judged_visit(reader)
            elif reader.group:
                found += self._judged_member(reader)
        return sorted(found, key=lambda it: list(Kind).index(it.kind))

    def _judged(self, reader: Reader, stream: Stream, receipts: Receipts) -> list[Violation]:
        owed = range(stream.promised, stream.published) if min(stream.qos, reader.qos) else ()
        late = receipts.late if reader not in self._groups.values() else []  # which its members have in common
        return _judged(reader, stream, receipts, owed, late, self._links_repeat)

    def _judged_visit(self, reader: Reader) -> list[Violation]:
        """Whether a visitor got a stream without gaps while it was there."""
        found: list[Violation] = []
        for index, receipts in reader.receipts.items():
            stream = self.streams[index]
            got = [number for number in range(len(receipts.plain)) if receipts.times(number)]
            owed = range(got[0], got[-1]) if got and stream.qos and reader.qos else range(0)
            late = [it for it in receipts.late if it > receipts.began or not self._may_come_again(reader, stream, it)]
            found += _judged(reader, stream, receipts, owed, late, self._links_repeat)
        return found

    def _may_come_again(self, reader: Reader, stream: Stream, number: int) -> bool:
        """Whether a message that was routed before may be sent again at QoS 1, to others than it went to at first.

        A session that began in between then gets it after later ones; so does another member of a group.
        """
        is_local = stream.place == reader.place or not self._links_repeat
        return stream.qos == 1 and (not is_local or number in stream.resent)

    def _judged_member(self, reader: Reader) -> list[Violation]:
        """The order in which a member of a group got its share. A message sent again may go to another member."""
        found: list[Violation] = []
        for index, receipts in reader.receipts.items():
            stream = self.streams[index]
            late = [it for it in receipts.late if not self._may_come_again(reader, stream, it)]
            found += _violations(reader, stream, {Kind.DISORDER: sorted(late)})
        return found

    def duplicates(self) -> "Duplicates":
        out = Duplicates()
        for reader in self._owed_to:
            for index, receipts in reader.receipts.items():
                stream = self.streams[index]
                out.marked += sum(receipts.times(it) > 1 for it in _numbers(receipts.marked))
                for number in _numbers(receipts.plain, above=1):
                    if number in stream.resent:
                        out.publisher += 1
                    elif stream.place != reader.place:
                        out.links += 1
        return out


@dataclass
class Duplicates:
    """Messages that a subscriber at QoS 1 got more than once, by what explains it."""

    marked: int = 0  # sent again by the broker, with DUP
    publisher: int = 0  # sent again by the publisher
    links: int = 0  # sent again on a link between brokers, where QoS 1 is at least once, too


def _acknowledged(stream: Stream) -> int:
    return sum(stream.acknowledged[stream.promised :])


def _numbers(counts: bytearray, above: int = 0) -> list[int]:
    return [number for number, count in enumerate(counts) if count > above] if any(counts) else []


def _judged(
    reader: Reader, stream: Stream, receipts: Receipts, owed: Iterable[int], late: Iterable[int], links_repeat: bool
) -> list[Violation]:
    """What is wrong with what one subscriber got of one stream, if it was to get these numbers."""
    lost = [it for it in owed if stream.acknowledged[it] and not receipts.times(it)]
    found = {Kind.LOST: lost, Kind.DISORDER: sorted(late)}
    if stream.qos == 0 or (stream.qos == 2 and reader.qos != 1):
        found[Kind.TWICE] = [it for it in range(len(receipts.plain)) if receipts.times(it) > 1]
    else:
        is_local = stream.place == reader.place or not links_repeat
        repeated = _numbers(receipts.plain, above=1)
        found[Kind.UNMARKED] = [it for it in repeated if not _is_explained(stream, receipts, it, is_local)]
    return _violations(reader, stream, found)


def _violations(reader: Reader, stream: Stream, found: dict[Kind, list[int]]) -> list[Violation]:
    of = f"{reader.name} (QoS {reader.qos}, at {reader.place}) of {stream.publisher} (at {stream.place}) {stream.topic}"
    return [
        Violation(kind, len(numbers), f"{of} QoS {stream.qos}: {ranges(numbers)} of {stream.published}")
        for kind, numbers in found.items()
        if numbers
    ]


def _wants(reader: Reader, stream: Stream) -> bool:
    return any(matches(each, stream.topic) for each in reader.filters)


def _is_explained(stream: Stream, receipts: Receipts, number: int, is_local: bool) -> bool:
    """Whether somebody before the last broker may have sent a message at QoS 1 again; at QoS 2 nobody may."""
    return stream.qos == 1 and (not is_local or receipts.plain[number] <= 1 + stream.resent[number])
