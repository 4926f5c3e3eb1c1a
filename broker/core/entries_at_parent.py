"""The parent's table as this broker knows it: which entries the parent has been told, and which it is still to be told.

An entry is told with one SUBSCRIBE or UNSUBSCRIBE, which takes a packet id until the parent acknowledges it. Only
UNACKNOWLEDGED_MAX of them are under way at a time; what changes meanwhile waits, as one change per entry: the last one
counts, and an entry that came and went while it waited is never told. Below that limit every single change is told and
counted.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import mqtt5

from brokerbed.broker.core import persist
from brokerbed.broker.core.link import IDENTITY, REFRESH, RESYNC, RESYNCS, SUBSCRIBE, UNSUBSCRIBE, Known
from brokerbed.broker.values import Entry
from brokerbed.log.record import Kind

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.session import Session

UNACKNOWLEDGED_MAX = 10_000  # enough for every single change of a busy broker, and a small part of the packet ids
UNSURE = -1  # instead of a packet id: the parent may or may not have been told, and will be told (again)
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
    kind: str  # of message on a link
    is_question: bool  # the parent is to send what is retained for the entry


class EntriesAtParent:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.known: dict[Entry, Known] = {}  # what the parent knows, or may know
        self._unacknowledged: dict[int, Change] = {}  # by packet id
        self._waiting: OrderedDict[Entry, Change] = OrderedDict()

    @property
    def open(self) -> int:
        """Changes that the parent has not acknowledged."""
        return len(self._unacknowledged) + len(self._waiting)

    def tell(self, parent: "Session", change: Change, now_ns: int) -> None:
        if self._waiting or len(self._unacknowledged) >= UNACKNOWLEDGED_MAX:
            self._wait(change)
        else:
            self._send(parent, change, now_ns)

    def acknowledged(self, parent: "Session", packet_id: int, now_ns: int) -> None:
        change = self._unacknowledged.pop(packet_id, None)
        if change is None:
            return
        parent.parked.pop(packet_id, None)
        entry = change.entry
        known = self.known.get(entry)
        if known is not None and known.open_id == packet_id:  # else something newer was told since, or waits
            known.open_id = 0
            persist.save_known(self._broker, known.number, entry if change.is_added else None, True)
            if not change.is_added:
                del self.known[entry]
        while self._waiting and len(self._unacknowledged) < UNACKNOWLEDGED_MAX:
            entry, change = self._waiting.popitem(last=False)
            if change.is_added or entry in self.known:
                self._send(parent, change, now_ns)

    def lost(self, parent: "Session") -> list[Entry]:
        """The link is down. Returns the entries for which the parent has perhaps not been asked what is retained."""
        asked = [change.entry for change in self._unacknowledged.values() if change.is_added]
        asked += [change.entry for change in self._waiting.values() if change.is_question]
        for packet_id, change in self._unacknowledged.items():
            parent.parked.pop(packet_id, None)
            if change.entry in self.known:
                self.known[change.entry].open_id = UNSURE
        self._unacknowledged.clear()
        self._waiting.clear()
        return asked

    def restore(self, entry: Entry, number: int, is_sure: bool) -> None:
        known = self.known[entry] = Known()
        known.number = number
        known.open_id = 0 if is_sure else UNSURE

    def is_sure(self, entry: Entry) -> bool:
        """Whether the parent knows it for certain."""
        known = self.known.get(entry)
        return known is not None and known.open_id == 0

    def forget(self) -> None:
        """The parent knows nothing."""
        for known in self.known.values():
            persist.save_known(self._broker, known.number, None, True)
        self.known.clear()

    def _wait(self, change: Change) -> None:
        """Instead of an older change of that entry, if one waits; a repetition of what waits changes nothing."""
        old = self._waiting.get(change.entry)
        if old is not None and old.is_added == change.is_added:
            return
        self._waiting[change.entry] = change
        known = self.known.get(change.entry)
        if known is not None and change.kind != REFRESH:
            known.open_id = UNSURE
            persist.save_known(self._broker, known.number, change.entry, False)

    def _send(self, parent: "Session", change: Change, now_ns: int) -> None:
        assert parent.link is not None
        assert parent.connection is not None
        entry = change.entry
        packet_id = persist.take_packet_id(self._broker, parent)
        parent.parked[packet_id] = None  # until it is acknowledged
        self._unacknowledged[packet_id] = change
        known = self.known.setdefault(entry, Known())
        known.open_id = packet_id
        known.number = persist.save_known(self._broker, known.number, entry, False)
        self._broker.send(parent.connection, _packet(packet_id, change))
        if change.is_question and parent.link.is_foreign:
            self._broker.overlay.foreign_asked(parent.connection, entry)
        parent.link.sent[change.kind] += 1
        log = self._broker.log
        if log is not None:
            topic = log.number(entry.filter)
            log.add(now_ns, _LOGGED[change.kind], parent.log_number, topic, flags=change.is_added)


def _packet(packet_id: int, change: Change) -> mqtt5.Packet:
    entry = change.entry
    properties = [(IDENTITY, entry.identity)] if entry.identity else []
    if change.kind == RESYNC:
        properties.append((RESYNCS, ""))
    if not change.is_added:
        return mqtt5.UnsubscribePacket(packet_id, [entry.filter], user_properties=properties)
    wanted = mqtt5.TopicFilter(
        entry.filter, max_qos=mqtt5.QoS(2), no_local=True, retain_as_published=True,
        retain_handling=ALWAYS if change.is_question else NEVER,
    )  # fmt: skip
    return mqtt5.SubscribePacket(packet_id, [wanted], user_properties=properties)
