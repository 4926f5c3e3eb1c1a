"""Which messages at QoS 1 and 2 a network of brokers has lost, from the logs of its brokers once it is at rest.

Two things must be so. A delivery that a broker has begun is acknowledged by its receiver (a client, or the broker at
the other end of a link), or the broker still has it for a client that is not connected. And a message comes to the
broker of every client whose subscription all brokers knew of when the message entered.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from brokerbed.log.record import MAGIC, NAMES_FILE, RECORD, RECORDS_FILE, Kind, Reason
from brokerbed.topics import matches

SHOWN_MAX = 10
GONE = "gone with a crash"
AT_INPUT = (Reason.INPUT_FULL, Reason.INPUT_EXPIRED)


class Entered(NamedTuple):
    """A message that a client published, where it entered the network."""

    message: str  # its identity: broker and life where it entered, and its number there
    topic: str
    time_ns: int
    publisher: str


@dataclass
class Period:
    """The subscription of a client, and when it existed."""

    client: str
    topic_filter: str
    qos: int
    from_ns: int
    to_ns: int | None = None  # None: it still exists
    is_ended_by_crash: bool = False


class Event(NamedTuple):
    time_ns: int
    kind: int
    reason: int
    qos: int
    message: str  # empty if the event has no message
    topic: str
    subject: str


@dataclass
class BrokerLog:
    """The contents of a broker's log over all its lives."""

    is_input_served: bool  # messages are served before they are routed
    entered: list[Entered] = field(default_factory=list)
    received: set[str] = field(default_factory=set)  # messages from clients and links
    routed: set[tuple[str, str]] = field(default_factory=set)  # pairs of message and receiver
    open: dict[tuple[str, str], str] = field(default_factory=dict)  # pairs that are not acknowledged, with the topic
    at_input: dict[str, str] = field(default_factory=dict)  # messages in service at the input, with their topics
    gone_at_input: dict[str, str] = field(default_factory=dict)  # those that were lost with a former life
    dropped: list[tuple[Reason, str, str, str]] = field(default_factory=list)  # message, topic, receiver
    periods: dict[tuple[str, str], Period] = field(default_factory=dict)  # current subscriptions by client and filter
    ended: list[Period] = field(default_factory=list)
    started_ns: int = -1

    def note(self, event: Event, brokers: Iterable[str]) -> None:
        if event.kind == Kind.STARTED:
            self._start(event.time_ns)
        elif event.kind in (Kind.SUBSCRIBED, Kind.UNSUBSCRIBED):
            self._note_subscription(event, brokers)
        elif event.message and event.qos:
            self._note_message(event, brokers)

    def _start(self, time_ns: int) -> None:
        """Begins a new life: surviving subscriptions are logged again at once, and messages at the input are gone."""
        self.started_ns = time_ns
        self.gone_at_input |= self.at_input
        self.at_input = {}
        for period in self.periods.values():
            period.to_ns, period.is_ended_by_crash = time_ns, True
            self.ended.append(period)
        self.periods = {}

    def _note_subscription(self, event: Event, brokers: Iterable[str]) -> None:
        key = event.subject, event.topic
        if is_link(event.subject, brokers):
            return
        if event.kind == Kind.UNSUBSCRIBED:
            if (period := self.periods.pop(key, None)) is not None:
                period.to_ns = event.time_ns
                self.ended.append(period)
            return
        if event.time_ns == self.started_ns:
            for period in self.ended:
                if (period.client, period.topic_filter) == key and period.to_ns == self.started_ns:
                    self.ended.remove(period)
                    period.to_ns, period.is_ended_by_crash = None, False
                    self.periods[key] = period
                    return
        self.periods.setdefault(key, Period(*key, event.qos, event.time_ns)).qos = event.qos

    def _note_message(self, event: Event, brokers: Iterable[str]) -> None:
        key, kind = (event.message, event.subject), event.kind
        if kind == Kind.RECEIVED:
            self.received.add(event.message)
            if self.is_input_served:
                self.at_input[event.message] = event.topic
            if not is_link(event.subject, brokers):
                self.entered.append(Entered(event.message, event.topic, event.time_ns, event.subject))
        elif kind == Kind.SERVED or event.reason in AT_INPUT:
            self.at_input.pop(event.message, None)
            self.gone_at_input.pop(event.message, None)
        elif kind in (Kind.QUEUED, Kind.SENT):
            self.routed.add(key)
            self.open.setdefault(key, event.topic)
        elif kind in (Kind.ACKNOWLEDGED, Kind.DROPPED):
            self.routed.add(key)
            self.open.pop(key, None)
        if kind == Kind.DROPPED:
            receiver = "" if event.reason in AT_INPUT else event.subject
            self.dropped.append((Reason(event.reason), event.message, event.topic, receiver))


def is_link(subject: str, brokers: Iterable[str]) -> bool:
    """Links are called child>parent or parent>child."""
    one, is_pair, other = subject.partition(">")
    return bool(is_pair) and one in brokers and other in brokers


def losses(
    folders: Mapping[str, Path], waiting: Mapping[str, int], calm_ns: Sequence[int], is_input_served: bool
) -> list[str]:
    """Describes each loss in a line. `folders` have the logs of the brokers, `waiting` is how many messages each broker
    still has for clients that are not connected, and `calm_ns` are the times at which nothing was under way."""
    logs = {name: BrokerLog(is_input_served) for name in folders}
    for name, log in logs.items():
        for event in events(folders[name]):
            log.note(event, folders)
    lost: dict[tuple[str, str], str] = {}  # by message and receiver
    for name, log in logs.items():
        for message, topic, receiver, why in _undelivered(log, logs, waiting[name]):
            lost[message, receiver] = f"{message} to {topic} at {name}{receiver and f' for {receiver}'}: {why}"
    reported = {message for message, _ in lost}
    for name, log in logs.items():
        for entered, client in _never_routed(log, logs.values(), calm_ns):
            if entered.message not in reported:
                lost[entered.message, client] = (
                    f"{entered.message} to {entered.topic}: never came to {name}, where {client} is subscribed"
                )
    return list(lost.values())


def losses_text(lost: list[str]) -> str:
    count = "1 delivery at QoS 1 or 2 was" if len(lost) == 1 else f"{len(lost)} deliveries at QoS 1 or 2 were"
    more = [f"... and {len(lost) - SHOWN_MAX} more"] if len(lost) > SHOWN_MAX else []
    return "\n".join([f"{count} lost:", *lost[:SHOWN_MAX], *more])


def _undelivered(log: BrokerLog, logs: Mapping[str, BrokerLog], waiting: int) -> Iterator[tuple[str, str, str, str]]:
    """Yields the message, topic and receiver of each lost delivery, and the reason."""
    for reason, message, topic, receiver in log.dropped:
        is_ended = reason == Reason.SESSION_ENDED and not is_link(receiver, logs)
        is_expired = reason in (Reason.EXPIRED, Reason.INPUT_EXPIRED)
        if not (is_ended or is_expired):  # intended by the receiver or the publisher
            yield message, topic, receiver, f"dropped, {reason.name.lower().replace('_', ' ')}"
    yield from ((message, topic, "", GONE) for message, topic in log.gone_at_input.items())
    to_clients = []
    for (message, receiver), topic in log.open.items():
        if not is_link(receiver, logs):
            to_clients.append((message, topic, receiver, GONE))
        elif message not in logs[receiver.partition(">")[2]].received:
            yield message, topic, receiver, GONE
    yield from to_clients[: max(0, len(to_clients) - waiting)]  # a crash loses the oldest


def _never_routed(log: BrokerLog, logs: Iterable[BrokerLog], calm_ns: Sequence[int]) -> Iterator[tuple[Entered, str]]:
    """Messages that were not routed to a client of this broker although its subscription was known everywhere.

    Subscriptions that ended are not checked, because they may have ended before the message arrived.
    """
    entered = [arrival for other in logs for arrival in other.entered]
    for period in (*log.ended, *log.periods.values()):
        place = bisect_left(calm_ns, period.from_ns)
        is_given_up = period.to_ns is not None and not period.is_ended_by_crash
        if period.qos == 0 or place == len(calm_ns) or is_given_up:
            continue
        for arrival in entered:
            is_known = calm_ns[place] <= arrival.time_ns and (period.to_ns is None or arrival.time_ns < period.to_ns)
            is_due = is_known and arrival.publisher != period.client and matches(period.topic_filter, arrival.topic)
            if is_due and (arrival.message, period.client) not in log.routed:
                yield arrival, period.client


def events(folder: Path) -> Iterator[Event]:
    """The events of all lives of a broker, in order."""
    life = 1
    while (file := folder / RECORDS_FILE.format(life)).exists():
        names = _names(folder / NAMES_FILE.format(life))
        data = file.read_bytes()[len(MAGIC) :]
        whole = data[: len(data) // RECORD.size * RECORD.size]  # the broker may be writing a record
        for record in RECORD.iter_unpack(whole):
            time_ns, sequence, origin, subject, topic, _, _, _, kind, qos, reason, _ = record
            message = f"{names[origin]}.{sequence}" if sequence >= 0 and origin >= 0 else ""
            yield Event(time_ns, kind, reason, qos, message, names.get(topic, ""), names.get(subject, ""))
        life += 1


def _names(file: Path) -> dict[int, str]:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    return {entry["name"]: entry["is"] for entry in entries if "name" in entry}
