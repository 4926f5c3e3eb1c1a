"""The queues of a peer: the outbox, from which its messages are sent, and the inbox, in which it works on messages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from brokerbed.broker.config import Demand
from brokerbed.broker.core import lifetime
from brokerbed.broker.values import NO_PROPERTIES, Message, Properties
from brokerbed.clients.actor import PeerClient
from brokerbed.clients.delivery_stats import DeliveryStats
from brokerbed.clients.stage import MessageRecorder, Stage, identity, payload_of
from brokerbed.log.record import Kind, Reason
from brokerbed.scenario.peers import Publisher, Subscriber

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd

PUBLISHED, SENT, RECEIVED, PROCESSED = map(int, (Kind.PUBLISHED, Kind.SENT, Kind.RECEIVED, Kind.PROCESSED))
ACKNOWLEDGED, EXPIRES, DROPPED = map(int, (Kind.ACKNOWLEDGED, Kind.EXPIRES, Kind.DROPPED))
EXPIRED = int(Reason.EXPIRED)


class Stream(NamedTuple):
    """Messages of one peer to one topic, with numbers of their own."""

    id: str
    topic: str
    qos: int


class Outbox:
    """Messages wait here until they are sent. It is served while the broker has accepted the client.

    A message that left the queue before the CONNACK would be lost at QoS 0.
    """

    def __init__(self, crowd: "Crowd", client: PeerClient, demand: Demand | None) -> None:
        self._crowd = crowd
        self._client = client
        self._payload_bytes = crowd.scenario.payload_bytes
        self._recorders: dict[str, MessageRecorder] = {}  # by stream
        client.acknowledged = self._acknowledged
        client.is_too_late = self._is_too_late
        self.stage = Stage(crowd.clock, demand, self._send, self._died)

    def put(
        self,
        stream: Stream,
        number: int,
        time_ns: int,
        properties: Properties = NO_PROPERTIES,
        expires_at_ns: int | None = None,
    ) -> None:
        """Message number `number` of the stream is made at this time."""
        recorder = self._recorders.get(stream.id)
        if recorder is None:
            recorder = self._crowd.recorder_of(stream.id, stream.topic, stream.id, stream.qos)
            self._recorders[stream.id] = recorder
        dies_ns = None if expires_at_ns is None else self._crowd.clock.of_brokers_ns(expires_at_ns)
        payload = payload_of(stream.id, number, self._payload_bytes, dies_ns)
        recorder.add(time_ns, PUBLISHED, number, len(payload))
        if expires_at_ns is not None:
            recorder.add(expires_at_ns, EXPIRES, number, len(payload))
        item = recorder, number, stream.topic, payload, stream.qos, properties, dies_ns
        self.stage.put(item, time_ns, expires_at_ns)

    def put_unlogged(self, topic: str, payload: bytes, qos: int, time_ns: int, properties: Properties) -> None:
        """A message that belongs to no stream of the experiment."""
        self.stage.put((None, 0, topic, payload, qos, properties, None), time_ns)

    def _send(self, item: Any, time_ns: int) -> None:
        recorder, number, topic, payload, qos, properties, dies_ns = item
        if recorder is not None:
            recorder.add(time_ns, SENT, number, len(payload))
        self._client.publish(topic, payload, qos, properties, dies_ns)

    def _died(self, item: Any, time_ns: int) -> None:
        recorder, number, _, payload, *_ = item
        recorder.add(time_ns, DROPPED, number, len(payload), EXPIRED)

    def _is_too_late(self, message: Message) -> bool:
        """Whether a message that has left the queue, but not the client, has died meanwhile; this is logged."""
        now_ns = self._crowd.clock.now_ns
        is_too_late = lifetime.is_over(message.expires_at_ns, self._crowd.clock.of_brokers_ns(now_ns))
        if is_too_late:
            self._log(now_ns, DROPPED, message, EXPIRED)
        return is_too_late

    def _acknowledged(self, message: Message) -> None:
        self._log(self._crowd.clock.now_ns, ACKNOWLEDGED, message)

    def _log(self, now_ns: int, kind: int, message: Message, reason: int = 0) -> None:
        message_identity = identity(message.payload)
        recorder = None if message_identity is None else self._recorders.get(message_identity[0].decode())
        if message_identity is not None and recorder is not None:
            recorder.add(now_ns, kind, message_identity[1], len(message.payload), reason)


class Arrived(NamedTuple):
    """A message in an inbox."""

    recorder: MessageRecorder | None  # None if it belongs to no stream of the experiment
    number: int
    payload: bytes
    properties: Properties


class Inbox:
    """The messages that a peer has received, which it processes one after the other."""

    def __init__(self, crowd: "Crowd", client: PeerClient, peer: Subscriber, demand: Demand | None) -> None:
        self._crowd = crowd
        self._peer = peer
        self._recorders: dict[tuple[bytes, str, int], MessageRecorder] = {}  # by stream, topic and QoS
        self.delivery_stats: DeliveryStats | None = None  # only if the run is watched
        client.received = self._received
        client.subscribe(peer.topic, peer.qos)
        self.stage = Stage(crowd.clock, demand, self.processed, self._died)
        self.stage.switch(True)

    def watch(self, streams: Mapping[str, Publisher]) -> None:
        self.delivery_stats = DeliveryStats(self._crowd.scenario.seed, streams)

    def _received(self, topic: str, payload: bytes, qos: int, properties: Properties) -> None:
        now_ns = self._crowd.clock.now_ns
        message_identity = identity(payload)
        if message_identity is None:
            if self.takes_unidentified(properties):
                self.stage.put(Arrived(None, 0, payload, properties), now_ns)
            return
        stream, number = message_identity
        recorder = self._recorders.get((stream, topic, qos))
        if recorder is None:
            recorder = self._crowd.recorder_of(self._peer.id, topic, stream.decode(), qos)
            self._recorders[stream, topic, qos] = recorder
        recorder.add(now_ns, RECEIVED, number, len(payload))
        dies_ns = lifetime.in_payload(payload)
        expires_at_ns = None if dies_ns is None else self._crowd.clock.model_ns(dies_ns)
        self.stage.put(Arrived(recorder, number, payload, properties), now_ns, expires_at_ns)

    def _died(self, arrived: Any, time_ns: int) -> None:
        arrived.recorder.add(time_ns, DROPPED, arrived.number, len(arrived.payload), EXPIRED)

    def takes_unidentified(self, properties: Properties) -> bool:  # noqa: ARG002
        """Whether it works on messages without identity: of classes, which the filter may also match, or strangers."""
        return False

    def processed(self, arrived: Any, time_ns: int) -> None:
        """Overridden by peers that act on what they have processed."""
        recorder = arrived.recorder
        recorder.add(time_ns, PROCESSED, arrived.number, len(arrived.payload))
        if self.delivery_stats is not None:
            self.delivery_stats.add(recorder.publisher, arrived.number, time_ns)
