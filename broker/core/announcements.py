"""The routing entries that a broker announces over one link, and which of them the neighbour has acknowledged.

Every change of an entry is one packet: to the parent a SUBSCRIBE or UNSUBSCRIBE (so that any MQTT 5 broker can be the
parent), to a child a PUBLISH at QoS 1 under `$overlay/`. The packet occupies a packet id until the neighbour
acknowledges it. At most UNACKNOWLEDGED_MAX packets are unacknowledged at a time. Beyond that limit changes wait, and
only the last change of each entry is kept: an entry that appears and disappears while it waits is never announced.
Below the limit every single change is announced and counted.

Changes are not queued while the link is down. When the link is up again, the difference between the entries that the
neighbour has and those it should have is announced (`Overlay.resynchronise`).
"""

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import mqtt5

from brokerbed.broker.core import persist
from brokerbed.broker.core.link import ENTRY_TOPIC, IDENTITY, REFRESH, RESYNC, RESYNCS, SUBSCRIBE, UNSUBSCRIBE
from brokerbed.broker.errors import ProtocolError
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

    __slots__ = ("row_number", "unacknowledged_id")

    def __init__(self) -> None:
        self.unacknowledged_id = 0  # packet id of the last change; 0 once it is acknowledged
        self.row_number = 0  # of the entry's row in the store


class Announcements:
    __slots__ = ("_broker", "_unacknowledged", "_waiting", "entries", "session")

    def __init__(self, broker: "Broker", session: "Session") -> None:
        self._broker = broker
        self.session = session  # the session of the link
        self.entries: dict[Entry, Announced] = {}
        self._unacknowledged: dict[int, Change] = {}  # changes that were sent, by packet id
        self._waiting: OrderedDict[Entry, Change] = OrderedDict()  # changes to send once there is room

    @property
    def open(self) -> int:
        """How many changes the neighbour has not acknowledged."""
        return len(self._unacknowledged) + len(self._waiting)

    def announce(self, change: Change, now_ns: int) -> None:
        """Send a change now or as soon as there is room. Called only while the link is up."""
        if self._waiting or len(self._unacknowledged) >= UNACKNOWLEDGED_MAX:
            self._wait(change)
        else:
            self._send(change, now_ns)

    def acknowledged(self, packet_id: int, now_ns: int) -> None:
        change = self._unacknowledged.pop(packet_id, None)
        if change is None:
            return
        self.session.parked.pop(packet_id, None)
        entry = change.entry
        announced = self.entries.get(entry)
        # Another id here means that a newer change of the entry was sent or is waiting.
        if announced is not None and announced.unacknowledged_id == packet_id:
            announced.unacknowledged_id = 0
            if change.is_added:
                self._save(entry, announced, True)
            else:
                self._forget(entry)
        while self._waiting and len(self._unacknowledged) < UNACKNOWLEDGED_MAX:
            entry, change = self._waiting.popitem(last=False)
            if change.is_added or entry in self.entries:
                self._send(change, now_ns)

    def lost(self) -> list[Entry]:
        """The link is down. Returns the entries for which a request for retained messages may not have arrived."""
        unanswered = [change.entry for change in self._unacknowledged.values() if change.is_added]
        unanswered += [change.entry for change in self._waiting.values() if change.requests_retained]
        for packet_id, change in self._unacknowledged.items():
            self.session.parked.pop(packet_id, None)
            if change.entry in self.entries:
                self.entries[change.entry].unacknowledged_id = UNCERTAIN
        self._unacknowledged.clear()
        self._waiting.clear()
        return unanswered

    def restore(self, entry: Entry, row_number: int, is_acknowledged: bool) -> None:
        announced = self.entries[entry] = Announced()
        announced.row_number = row_number
        announced.unacknowledged_id = 0 if is_acknowledged else UNCERTAIN

    def is_acknowledged(self, entry: Entry) -> bool:
        """Whether the neighbour has acknowledged that it has the entry."""
        announced = self.entries.get(entry)
        return announced is not None and announced.unacknowledged_id == 0

    def forget_all(self) -> None:
        """The neighbour has none of the announced entries any more."""
        for entry in list(self.entries):
            self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        persist.forget_announced(self._broker, self.entries.pop(entry).row_number)

    def _save(self, entry: Entry, announced: Announced, is_acknowledged: bool) -> None:
        row = self.session, entry, is_acknowledged
        announced.row_number = persist.save_announced(self._broker, announced.row_number, row)

    def _wait(self, change: Change) -> None:
        """Let a change wait. It replaces an older waiting change of the same entry, unless it only repeats it."""
        old = self._waiting.get(change.entry)
        if old is not None and old.is_added == change.is_added:
            return
        self._waiting[change.entry] = change
        announced = self.entries.get(change.entry)
        if announced is not None and change.kind != REFRESH:
            announced.unacknowledged_id = UNCERTAIN
            self._save(change.entry, announced, False)

    def _send(self, change: Change, now_ns: int) -> None:
        broker, session, entry = self._broker, self.session, change.entry
        assert session.link is not None
        assert session.connection is not None
        packet_id = persist.take_packet_id(broker, session)
        session.parked[packet_id] = None  # the id is in use until the packet is acknowledged
        self._unacknowledged[packet_id] = change
        announced = self.entries.setdefault(entry, Announced())
        announced.unacknowledged_id = packet_id
        self._save(entry, announced, False)
        packet = packet_to_parent(packet_id, change) if session.link.is_parent else packet_to_child(packet_id, change)
        broker.send(session.connection, packet)
        if change.requests_retained and session.link.is_foreign:
            broker.overlay.foreign_parent_asked(session.connection, entry)
        session.link.sent[change.kind] += 1
        if broker.log is not None:
            topic = broker.log.number(entry.filter)
            broker.log.add(now_ns, _LOGGED[change.kind], session.log_number, topic, flags=change.is_added)


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
    kind = RESYNC if is_resync else SUBSCRIBE if is_added else UNSUBSCRIBE
    return Change(Entry(topic_filter, identity), is_added, kind, False)
