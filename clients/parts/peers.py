"""Publishers and subscribers that connect and disconnect, with queues of their own."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from brokerbed.broker.values import NO_PROPERTIES, Properties
from brokerbed.clients.actor import Actor, PeerClient
from brokerbed.clients.boxes import Inbox, Outbox, Stream
from brokerbed.clients.workload import messages, on_off, places, recorded_on_off, stream
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.peers import IntermittentPeer, Publisher, Subscriber
from brokerbed.scenario.workload import WorkloadPart
from brokerbed.topics import ADVERTISE

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd

CONNECTING_SHARES_MAX = 10_000  # enough for a median


class ConnectedPeer(Actor):
    """A peer that connects and disconnects, or stays connected. It has an outbox, an inbox, or both."""

    def __init__(self, crowd: "Crowd", peer: IntermittentPeer) -> None:
        self.crowd = crowd
        self.peer = peer
        self._places = None if not peer.roams else places(peer.places, stream(crowd.scenario.seed, "places", peer.id))
        self.client = crowd.new_peer(peer.broker if self._places is None else next(self._places), peer.id)
        self.client.is_accepted_changed = self._accepted_changed
        self._is_on = True
        self._is_kept_off = False  # by a fault
        self._on_since_ns: int | None = None  # while it is ON and the broker has not accepted it yet
        self.outbox: Outbox | None = None
        self.inbox: Inbox | None = None

    @property
    def clients(self) -> list[PeerClient]:
        return [self.client]

    def connect(self) -> None:
        self.client.connect()

    def begin(self) -> None:
        draws = stream(self.crowd.scenario.seed, "on-off", self.peer.id)
        if self.peer.connectivity is not None:
            self.crowd.each(recorded_on_off(self.peer.connectivity, draws), self._switch)
        elif self.peer.on is not None and self.peer.off is not None:
            self.crowd.each(on_off(self.peer.on, self.peer.off, draws), self._switch)

    def _switch(self, change: tuple[int, bool]) -> None:
        time_ns, is_on = change
        self._turn(is_on)
        self._on_since_ns = time_ns if self._is_on and not self.client.is_connected else None
        self._apply()

    def _turn(self, is_on: bool) -> None:
        was_on, self._is_on = self._is_on, is_on
        if is_on and not was_on and self._places is not None:
            self.client.move_to(next(self._places))

    def _accepted_changed(self, is_accepted: bool) -> None:
        since_ns, self._on_since_ns = self._on_since_ns, None
        if is_accepted and since_ns is not None and len(self.crowd.connecting_shares) < CONNECTING_SHARES_MAX:
            self.crowd.connecting_shares.append((self.crowd.clock.now_ns - since_ns) / self.peer.on_mean_ns)
        if self.outbox is not None:
            self.outbox.stage.switch(is_accepted)

    def watch(self, streams: Mapping[str, Publisher]) -> None:
        if self.inbox is not None:
            self.inbox.watch(streams)

    @property
    def waiting(self) -> int:
        """The number of messages in its own queues."""
        return sum(len(box.stage) for box in (self.outbox, self.inbox) if box is not None)

    @property
    def sent(self) -> int | None:
        """The number of the last message of its own that has left its queue; None if it makes none by itself."""
        return None

    def keep_off(self, is_kept_off: bool) -> None:
        self._is_kept_off = is_kept_off
        self._apply()

    def stop(self) -> None:
        self._is_kept_off = False
        self._turn(True)
        self._apply()

    def _apply(self) -> None:
        is_on = self._is_on and not self._is_kept_off
        if is_on:
            self.client.connect()
        else:
            self.client.disconnect()


class PublishingPeer(ConnectedPeer):
    """A peer that makes messages, which wait in its outbox until they are sent."""

    def __init__(self, crowd: "Crowd", peer: Publisher) -> None:
        super().__init__(crowd, peer)
        self._rate_per_s, self._recorded = peer.rate, peer.arrivals
        self._stream = Stream(peer.id, peer.topic, peer.qos)
        self._last_number = 0
        self._lifetime_ns = crowd.demand(peer.expiry, "expiry", peer.id)
        if crowd.scenario.algorithm.advertises:  # for as long as its session lasts, so not only while it is ON
            self.client.subscribe(ADVERTISE + peer.topic, peer.qos)
        self.outbox = Outbox(crowd, self.client, crowd.demand(peer.service, "publisher", peer.id))

    def begin(self) -> None:
        super().begin()
        times = messages(self.crowd.scenario.seed, self.peer.id, self._rate_per_s, self._recorded)
        self.crowd.each(times, self._publish)

    @property
    def sent(self) -> int | None:
        assert self.outbox is not None
        return self._last_number - len(self.outbox.stage)

    def _publish(self, publication: tuple[int, int]) -> None:
        assert self.outbox is not None
        self._last_number += 1
        time_ns, number = publication[0], self._last_number
        expires_at_ns = None if self._lifetime_ns is None else time_ns + self._lifetime_ns()
        self.outbox.put(self._stream, number, time_ns, self.properties_of(number), expires_at_ns)

    def properties_of(self, number: int) -> Properties:  # noqa: ARG002
        """Overridden by peers whose messages have properties."""
        return NO_PROPERTIES


class SubscribingPeer(ConnectedPeer):
    """A peer that processes the messages it receives, one after the other."""

    def __init__(self, crowd: "Crowd", peer: Subscriber) -> None:
        super().__init__(crowd, peer)
        self.inbox = Inbox(crowd, self.client, peer, crowd.demand(peer.service, "subscriber", peer.id))


def _actors(scenario: Scenario, _: None) -> list[Callable[..., Any]]:
    copies = range(scenario.copies)
    return [
        *(
            partial(PublishingPeer, peer=scenario.copy_of(peer, copy))
            for peer in scenario.publishers
            for copy in copies
        ),
        *(
            partial(SubscribingPeer, peer=scenario.copy_of(peer, copy))
            for peer in scenario.subscribers
            for copy in copies
        ),
    ]


PART = WorkloadPart(
    "peers", "Publishers and subscribers that connect and disconnect, with queues of their own.", _actors
)
