"""Publishers and subscribers that connect and disconnect, with queues of their own."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from brokerbed.broker.values import Message
from brokerbed.clients.actor import Actor, PeerClient
from brokerbed.clients.delivery_stats import DeliveryStats
from brokerbed.clients.stage import MessageRecorder, Stage, identity, payload_of
from brokerbed.clients.workload import messages, on_off, stream
from brokerbed.log.record import Kind
from brokerbed.scenario.format import Peer, Publisher, Subscriber
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.workload import WorkloadPart
from brokerbed.topics import ADVERTISE

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd

PUBLISHED, SENT, RECEIVED, PROCESSED = map(int, (Kind.PUBLISHED, Kind.SENT, Kind.RECEIVED, Kind.PROCESSED))
ACKNOWLEDGED = int(Kind.ACKNOWLEDGED)
CONNECTING_SHARES_MAX = 10_000  # enough for a median


class ConnectedPeer(Actor):
    """A peer that connects and disconnects, or stays connected."""

    def __init__(self, crowd: "Crowd", peer: Peer) -> None:
        self.crowd = crowd
        self.peer = peer
        self.client = crowd.new_peer(peer.broker, peer.id)
        self.client.is_accepted_changed = self._accepted_changed
        self._is_on = True
        self._is_kept_off = False  # by a fault
        self._on_since_ns: int | None = None  # while it is ON and the broker has not accepted it yet
        self.stage: Stage

    @property
    def clients(self) -> list[PeerClient]:
        return [self.client]

    def connect(self) -> None:
        self.client.connect()

    def begin(self) -> None:
        if self.peer.on is not None and self.peer.off is not None:
            times = on_off(self.peer.on, self.peer.off, stream(self.crowd.scenario.seed, "on-off", self.peer.id))
            self.crowd.each(times, self._switch)

    def _switch(self, change: tuple[int, bool]) -> None:
        time_ns, self._is_on = change
        self._on_since_ns = time_ns if self._is_on and not self.client.is_connected else None
        self._apply()

    def _accepted_changed(self, is_accepted: bool) -> None:
        since_ns, self._on_since_ns = self._on_since_ns, None
        if is_accepted and since_ns is not None and len(self.crowd.connecting_shares) < CONNECTING_SHARES_MAX:
            assert self.peer.on is not None
            self.crowd.connecting_shares.append((self.crowd.clock.now_ns - since_ns) / self.peer.on.mean)
        self.accepted(is_accepted)

    def accepted(self, is_accepted: bool) -> None:
        """Overridden by peers that work only while the broker has accepted them."""

    def keep_off(self, is_kept_off: bool) -> None:
        self._is_kept_off = is_kept_off
        self._apply()

    def stop(self) -> None:
        self._is_on, self._is_kept_off = True, False
        self._apply()

    def _apply(self) -> None:
        is_on = self._is_on and not self._is_kept_off
        if is_on:
            self.client.connect()
        else:
            self.client.disconnect()


class PublishingPeer(ConnectedPeer):
    """A peer that publishes. Messages wait in the peer's own queue, which is served while the broker has accepted it.

    A message that left the queue before the CONNACK would be lost at QoS 0.
    """

    def __init__(self, crowd: "Crowd", peer: Publisher) -> None:
        super().__init__(crowd, peer)
        self._rate_per_s = peer.rate
        self._last_number = 0
        self._payload_bytes = crowd.scenario.payload_bytes
        self._record = crowd.recorder_of(peer.id, peer.topic, peer.id, peer.qos).add
        self.client.acknowledged = self._acknowledged
        if crowd.scenario.algorithm.advertises:  # for as long as its session lasts, so not only while it is ON
            self.client.subscribe(ADVERTISE + peer.topic, peer.qos)
        self.stage = Stage(crowd.clock, crowd.demand(peer.service, "publisher", peer.id), self._send)

    def accepted(self, is_accepted: bool) -> None:
        self.stage.switch(is_accepted)

    def begin(self) -> None:
        super().begin()
        self.crowd.each(messages(self.crowd.scenario.seed, self.peer.id, self._rate_per_s), self._publish)

    @property
    def sent(self) -> int:
        """The number of the last message that has left its own queue."""
        return self._last_number - len(self.stage)

    def _publish(self, publication: tuple[int, int]) -> None:
        time_ns, _ = publication
        number = self._last_number = self._last_number + 1
        payload = payload_of(self.peer.id, number, self._payload_bytes)
        self._record(time_ns, PUBLISHED, number, len(payload))
        self.stage.put((number, payload), time_ns)

    def _send(self, item: Any, time_ns: int) -> None:
        number, payload = item
        self._record(time_ns, SENT, number, len(payload))
        self.client.publish(self.peer.topic, payload, self.peer.qos)

    def _acknowledged(self, message: Message) -> None:
        message_identity = identity(message.payload)
        assert message_identity is not None
        self._record(self.crowd.clock.now_ns, ACKNOWLEDGED, message_identity[1], len(message.payload))


class SubscribingPeer(ConnectedPeer):
    """A peer that processes the messages it receives, one after the other."""

    def __init__(self, crowd: "Crowd", peer: Subscriber) -> None:
        super().__init__(crowd, peer)
        self.client.received = self._received
        self.client.subscribe(peer.topic, peer.qos)
        self.stage = Stage(crowd.clock, crowd.demand(peer.service, "subscriber", peer.id), self._processed)
        self.stage.switch(True)
        self._recorders: dict[tuple[bytes, str, int], MessageRecorder] = {}  # by publisher, topic and QoS
        self.delivery_stats: DeliveryStats | None = None  # only if the run is watched

    def watch(self, publishers: Mapping[str, Publisher]) -> None:
        self.delivery_stats = DeliveryStats(self.crowd.scenario.seed, publishers)

    def _received(self, topic: str, payload: bytes, qos: int) -> None:
        message_identity = identity(payload)
        if message_identity is None:  # the filter also matches messages of a class
            return
        publisher, number = message_identity
        recorder = self._recorders.get((publisher, topic, qos))
        if recorder is None:
            recorder = self.crowd.recorder_of(self.peer.id, topic, publisher.decode(), qos)
            self._recorders[publisher, topic, qos] = recorder
        now_ns = self.crowd.clock.now_ns
        recorder.add(now_ns, RECEIVED, number, len(payload))
        self.stage.put((recorder, number, len(payload)), now_ns)

    def _processed(self, item: Any, time_ns: int) -> None:
        recorder, number, size = item
        recorder.add(time_ns, PROCESSED, number, size)
        if self.delivery_stats is not None:
            self.delivery_stats.add(recorder.publisher, number, time_ns)


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
