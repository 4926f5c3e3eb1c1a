"""The routing entries that a broker announces over one link, and which of them the neighbour has acknowledged.

Every change of an entry is one packet: to the parent a SUBSCRIBE or UNSUBSCRIBE (so that any MQTT 5 broker can be the
parent), to a child a PUBLISH at QoS 1 under `$overlay/`. The packet occupies a packet id until the neighbour
acknowledges it. Up to UNACKNOWLEDGED_MAX unacknowledged packets, every change is announced and counted. Beyond that
changes wait, and only the last one of each entry is kept: an entry that comes and goes meanwhile is never announced.

Changes are not queued while the link is down. When the link is up again, the difference between the entries that the
neighbour has and those it should have is announced (`Overlay.resynchronise`).

Some entries disappear at the neighbour without a message (routing/strategy.py has the rules). An entry that a newly
announced cover replaces is forgotten when the cover is acknowledged; until then it may still be there. An advertisement
is announced again only after its withdrawal has been acknowledged: what the neighbour announced because of it, it sent
before the acknowledgement, and forgot it then; so after the acknowledgement this broker can drop it as well.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import mqtt5

from brokerbed.broker.core import persist
from brokerbed.broker.core.link import (
    ADVERTISE,
    ENTRY_TOPIC,
    IDENTITY,
    REFRESH,
    RESYNC,
    RESYNCS,
    RETAINED,
    SUBSCRIBE,
    UNADVERTISE,
    UNSUBSCRIBE,
)
from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.routing.filters import FilterIndex
from brokerbed.broker.values import Entry
from brokerbed.log.record import Kind
from brokerbed.topics import filter_problem

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.session import Session

UNACKNOWLEDGED_MAX = 10_000  # enough to send each change of a busy broker, and a small part of all packet ids
UNCERTAIN = -1  # used as a packet id: the neighbour may or may not have the entry, which will be announced again
ALWAYS, NEVER = mqtt5.RetainHandling.SEND_ALWAYS, mqtt5.RetainHandling.SEND_NEVER
_LOGGED = {
    SUBSCRIBE: Kind.LINK_SUBSCRIBE,
    UNSUBSCRIBE: Kind.LINK_UNSUBSCRIBE,
    ADVERTISE: Kind.LINK_ADVERTISE,
    UNADVERTISE: Kind.LINK_UNADVERTISE,
    REFRESH: Kind.LINK_REFRESH,
    RESYNC: Kind.LINK_RESYNC,
}


class Change(NamedTuple):
    entry: Entry
    is_added: bool
    kind: str  # kind of message on the link, for counting
    requests_retained: bool  # the parent is asked for the retained messages that match the entry


class Announced:
    """An entry that the neighbour has, or may have while it has not acknowledged the last change of the entry."""

    __slots__ = ("following", "is_asked_for", "is_held", "replaced_by", "row_number", "unacknowledged_id")

    def __init__(self) -> None:
        self.unacknowledged_id = 0  # packet id of the last change; 0 once it is acknowledged
        self.row_number = 0  # of the entry's row in the store
        self.is_asked_for = False  # the parent need not be asked (again) for the retained messages that match
        self.is_held = False  # the neighbour has, or may have, acknowledged it
        self.replaced_by = 0  # packet id of the announcement of a cover that replaces it; 0: none
        self.following: Change | None = None  # of an advertisement: the change to send after its withdrawal


class Announcements:
    __slots__ = (
        "_barriers", "_broker", "_unacknowledged", "_waiting", "advertised_index", "entries", "index", "is_assuming",
        "session",
    )  # fmt: skip

    def __init__(self, broker: "Broker", session: "Session", is_indexed: bool) -> None:
        """`is_indexed`: see Link."""
        self._broker = broker
        self.session = session  # the session of the link
        self.entries: dict[Entry, Announced] = {}
        self.index = FilterIndex() if is_indexed else None  # the filters in `entries` that are no advertisements
        self.advertised_index = FilterIndex() if is_indexed else None  # the advertisements that the neighbour holds
        # Changes that were sent, by packet id, with the entries that they replace at the neighbour:
        self._unacknowledged: dict[int, tuple[Change, list[Entry]]] = {}
        self._waiting: OrderedDict[Entry, Change] = OrderedDict()  # changes to send once there is room
        self._barriers: deque[tuple[int, Callable[[int], None]]] = deque()  # see when_acknowledged
        self.is_assuming = False  # the neighbour adds entries by itself, so they are not announced but assumed

    @property
    def open(self) -> int:
        """How many changes the neighbour has not acknowledged."""
        return len(self._unacknowledged) + len(self._waiting)

    @property
    def _is_silent(self) -> bool:
        """The link is about to end, and another neighbour has its entries: they do not change any more."""
        return self.session.link is not None and self.session.link.is_silent

    def announce(self, change: Change, now_ns: int) -> None:
        """Send a change now or as soon as there is room. Called only while the link is up."""
        announced = self.entries.get(change.entry)
        if announced is not None and not change.is_added:
            announced.is_asked_for = False
        if self._waiting or len(self._unacknowledged) >= UNACKNOWLEDGED_MAX:
            self._wait(change)
        else:
            self._send(change, announced, now_ns)

    def acknowledged(self, packet_id: int, now_ns: int) -> None:
        change, replaced = self._unacknowledged.pop(packet_id, (None, ()))
        if change is None:
            return
        self.session.parked.pop(packet_id, None)
        for entry in replaced:
            if entry in self.entries and self.entries[entry].replaced_by == packet_id:
                self.forget(entry)
        announced = self.entries.get(change.entry)
        if announced is not None:
            self._acknowledged(change, announced, packet_id, now_ns)
        while self._waiting and not self._is_silent and len(self._unacknowledged) < UNACKNOWLEDGED_MAX:
            entry, change = self._waiting.popitem(last=False)
            if change.is_added or entry in self.entries:
                self._send(change, self.entries.get(entry), now_ns)
        while self._barriers and self._is_over(self._barriers[0][0]):
            self._barriers.popleft()[1](now_ns)

    def when_acknowledged(self, action: Callable[[int], None], now_ns: int) -> None:
        """Call the action with the time when all changes so far are acknowledged; never if the link is lost before."""
        if not self.open:
            action(now_ns)
        else:
            self._barriers.append((0 if self._waiting else next(reversed(self._unacknowledged)), action))

    def _is_over(self, packet_id: int) -> bool:
        """Whether this packet is acknowledged; 0: whether no change waits or is unacknowledged."""
        return packet_id not in self._unacknowledged if packet_id else not self.open

    def _acknowledged(self, change: Change, announced: Announced, packet_id: int, now_ns: int) -> None:
        entry = change.entry
        if change.is_added and not announced.is_held:
            self._hold(entry, announced)
        if announced.unacknowledged_id != packet_id:  # a newer change of the entry was sent or is waiting
            return
        announced.unacknowledged_id = 0
        if change.is_added and not entry.is_request:
            self._save(entry, announced, True)
            return
        self.forget(entry)
        if self._broker.advertising is not None and entry.is_advertisement:
            self._broker.advertising.withdrawn(self.session, entry, now_ns)
        if announced.following is not None and not self._is_silent:
            self.announce(announced.following, now_ns)

    def lost(self) -> None:
        """The link is down. Requests for retained messages that are not acknowledged may not have arrived."""
        for packet_id, (change, replaced) in self._unacknowledged.items():
            self.session.parked.pop(packet_id, None)
            for entry in (change.entry, *replaced):
                if (announced := self.entries.get(entry)) is not None:
                    announced.unacknowledged_id, announced.replaced_by = UNCERTAIN, 0
                    announced.following = None
                    self._hold(entry, announced)
            if change.is_added and change.entry in self.entries:
                self.entries[change.entry].is_asked_for = False
        self._unacknowledged.clear()
        self._waiting.clear()
        self._barriers.clear()

    def restore(self, entry: Entry, row_number: int, is_acknowledged: bool) -> None:
        announced = self._new(entry)
        announced.row_number = row_number
        announced.unacknowledged_id = 0 if is_acknowledged else UNCERTAIN
        announced.is_asked_for = is_acknowledged
        self._hold(entry, announced)

    def assume(self, entry: Entry, is_acknowledged: bool = True) -> None:
        """The neighbour has the entry, or will have it when it gets what is under way, without an announcement."""
        self._waiting.pop(entry, None)
        announced = self.entries.get(entry) or self._new(entry)
        announced.unacknowledged_id = 0 if is_acknowledged else UNCERTAIN
        announced.is_asked_for = is_acknowledged
        self._hold(entry, announced)
        self._save(entry, announced, is_acknowledged)

    def is_acknowledged(self, entry: Entry) -> bool:
        """Whether the neighbour has acknowledged that it has the entry."""
        announced = self.entries.get(entry)
        return announced is not None and announced.unacknowledged_id == 0

    def is_in_force(self, entry: Entry) -> bool:
        """Whether an entry is announced and its withdrawal is not under way."""
        announced = self.entries.get(entry)
        if announced is None:
            return False
        change, _ = self._unacknowledged.get(announced.unacknowledged_id, (None, ()))
        return change is None or change.is_added

    def asks_for_retained(self, entry: Entry) -> bool:
        """Whether the parent has to be asked for retained messages when the entry is announced.

        If a cover of the filter is announced, this broker has them already.
        """
        if not entry.is_interest:
            return False
        announced = self.entries.get(entry)
        if announced is not None and announced.is_asked_for:
            return False
        return self.index is None or self.index.cover_of(entry.filter) is None

    def unwanted(self, wanted: dict[Entry, None]) -> list[Entry]:
        """The announced entries that are not wanted and that no announced cover is about to replace.

        Answers come first: without the interest that they stand for they would not be true.
        """
        found = [
            entry
            for entry, announced in self.entries.items()
            if entry not in wanted and not announced.replaced_by and not entry.is_request
        ]
        return sorted(found, key=lambda entry: not entry.is_answer)

    def request(self, entry: Entry, now_ns: int) -> None:
        """Ask the parent for retained messages, now or when the link is up."""
        if self.session.connection is not None:
            self.announce(Change(entry, True, RETAINED, False), now_ns)
        elif entry not in self.entries:
            announced = self._new(entry)
            announced.unacknowledged_id = UNCERTAIN
            self._save(entry, announced, False)

    def repeat_requests(self, now_ns: int) -> None:
        """Ask again for what the parent may not have been asked for before the link was cut."""
        for entry in [entry for entry in self.entries if entry.is_request]:
            self.request(entry, now_ns)

    def forget_all(self) -> None:
        """The neighbour has none of the announced entries any more."""
        for entry in list(self.entries):
            self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """The neighbour does not have the entry any more."""
        self._waiting.pop(entry, None)
        announced = self.entries.pop(entry, None)
        if announced is None:
            return
        persist.forget_announced(self._broker, announced.row_number)
        if self.index is not None and self.advertised_index is not None:
            if entry.is_advertisement:
                self.advertised_index.discard(entry.topics)
            elif entry.is_interest:
                self.index.discard(entry.filter)

    def _new(self, entry: Entry) -> Announced:
        announced = self.entries[entry] = Announced()
        if self.index is not None and entry.is_interest:
            self.index.add(entry.filter)
        return announced

    def _hold(self, entry: Entry, announced: Announced) -> None:
        if not announced.is_held:
            announced.is_held = True
            if self.advertised_index is not None and entry.is_advertisement:
                self.advertised_index.add(entry.topics)

    def _save(self, entry: Entry, announced: Announced, is_acknowledged: bool) -> None:
        row = self.session, entry, is_acknowledged
        announced.row_number = persist.save_announced(self._broker, announced.row_number, row)

    def _wait(self, change: Change) -> None:
        """Let a change wait. It replaces an older waiting change of the same entry, unless it only repeats it.

        It goes to the end, because changes made in the meantime may have to come before it.
        """
        old = self._waiting.get(change.entry)
        if old is not None and old.is_added == change.is_added:
            return
        self._waiting[change.entry] = change
        self._waiting.move_to_end(change.entry)
        announced = self.entries.get(change.entry)
        if announced is not None and change.kind != REFRESH:
            announced.unacknowledged_id = UNCERTAIN
            self._save(change.entry, announced, False)

    def _send(self, change: Change, announced: Announced | None, now_ns: int) -> None:
        broker, session, entry = self._broker, self.session, change.entry
        assert session.link is not None
        assert session.connection is not None
        if announced is not None and announced.unacknowledged_id and entry.is_advertisement:
            withdrawing = self._unacknowledged.get(announced.unacknowledged_id)
            announced.following = change if change.is_added else None
            if withdrawing is not None and not withdrawing[0].is_added:
                return
            if change.is_added and withdrawing is not None:
                announced.following = None  # it only repeats what is under way
            elif change.is_added:
                change = Change(entry, False, RESYNC, False)  # whether the neighbour has it is uncertain
        if announced is None:
            announced = self._new(entry)
        packet_id = persist.take_packet_id(broker, session)
        session.parked[packet_id] = None  # the id is in use until the packet is acknowledged
        replaced = self._replaced(entry) if self.index is not None and change.is_added else []
        self._unacknowledged[packet_id] = change, replaced
        announced.unacknowledged_id, announced.replaced_by = packet_id, 0
        announced.is_asked_for = change.is_added
        self._save(entry, announced, False)
        packet = packet_to_parent(packet_id, change) if session.link.is_parent else packet_to_child(packet_id, change)
        broker.send(session.connection, packet)
        if change.requests_retained and session.link.is_foreign:
            broker.overlay.retained.foreign_parent_asked(session.connection, entry)
        self._count(change, now_ns)
        if replaced:
            self._replace(replaced, packet_id, now_ns)
        if broker.advertising is not None and not change.is_added and entry.is_advertisement:
            broker.advertising.withdrawing(session, entry, now_ns)

    def _replaced(self, entry: Entry) -> list[Entry]:
        """The announced entries that the neighbour drops when it gets this one."""
        assert self.index is not None
        if not self._broker.overlay.algorithm.covers:
            return []
        return [Entry(topic_filter) for topic_filter in self.index.covered_by(entry.filter)]

    def _replace(self, replaced: list[Entry], packet_id: int, now_ns: int) -> None:
        """A foreign parent does not drop the entries by itself, so it is told to."""
        assert self.session.link is not None
        for entry in replaced:
            if self.session.link.is_foreign:
                self.announce(Change(entry, False, RESYNC, False), now_ns)
                continue
            announced = self.entries[entry]
            announced.unacknowledged_id, announced.replaced_by = UNCERTAIN, packet_id
            self._waiting.pop(entry, None)
            self._save(entry, announced, False)

    def _count(self, change: Change, now_ns: int) -> None:
        """Count and log a change that was sent. The end of an answer is no message of the algorithm."""
        log, entry, link = self._broker.log, change.entry, self.session.link
        assert link is not None
        is_interest = entry.is_interest
        if not is_interest and entry.is_answer:
            return
        link.sent[change.kind] += 1
        if log is not None and (is_interest or not entry.is_request):
            is_named = change.kind in (ADVERTISE, UNADVERTISE)  # the kind says that it is an advertisement
            topic = log.number(entry.topics if is_named else entry.filter)
            log.add(now_ns, _LOGGED[change.kind], self.session.log_number, topic, flags=change.is_added)


def kind_of(entry: Entry, is_added: bool) -> str:
    """The kind of message on a link that a change of an entry is."""
    if not entry.is_interest and entry.is_advertisement:
        return ADVERTISE if is_added else UNADVERTISE
    return SUBSCRIBE if is_added else UNSUBSCRIBE


def packet_to_parent(packet_id: int, change: Change) -> mqtt5.Packet:
    entry = change.entry
    properties = [(IDENTITY, entry.identity)] if entry.identity else []
    if change.kind == RESYNC:
        properties.append((RESYNCS, ""))
    if not change.is_added:
        return mqtt5.UnsubscribePacket(packet_id, [entry.filter], user_properties=properties)
    wanted = mqtt5.TopicFilter(
        entry.filter, max_qos=mqtt5.QoS(2), no_local=True, retain_as_published=True,
        retain_handling=ALWAYS if change.requests_retained else NEVER,
    )  # fmt: skip
    return mqtt5.SubscribePacket(packet_id, [wanted], user_properties=properties)


def packet_to_child(packet_id: int, change: Change) -> mqtt5.Packet:
    """A child is never asked for retained messages: they climb to the root, so the parent has them already."""
    payload = json.dumps([change.is_added, change.kind == RESYNC, *change.entry]).encode()
    return mqtt5.PublishPacket(ENTRY_TOPIC, payload, qos=mqtt5.QoS(1), packet_id=packet_id)


def read_from_parent(payload: bytes) -> Change:
    """Decode what `packet_to_child` has encoded; raises ProtocolError for anything else."""
    try:
        is_added, is_resync, topic_filter, identity = json.loads(payload)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError("an announcement that cannot be read") from error
    is_typed = isinstance(is_added, bool) and isinstance(topic_filter, str) and isinstance(identity, str)
    if not is_typed or filter_problem(topic_filter):
        raise ProtocolError("an announcement of something that is no entry")
    entry = Entry(topic_filter, identity)
    return Change(entry, is_added, RESYNC if is_resync else kind_of(entry, is_added), False)
