"""Sessions against a simple model: connect, subscribe, publish, read, drop and resume in any order.

The model is a list per subscriber of what it must get. Nothing is lost at QoS 1 and 2, nothing comes out of order per
publisher, topic and QoS, duplicates come at QoS 1 only and with the DUP flag, QoS 2 comes exactly once.
"""

from collections import defaultdict

import mqtt5
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core_client import FOREVER_S, Client, World

TOPICS = ("a", "a/b", "c")
FILTERS = ("a", "a/b", "c", "a/#", "+", "#")
NAMES = ("s0", "s1", "s2")
Key = tuple[str, str, int]  # publisher, topic, QoS


class Subscriber:
    """A client that keeps its half of the QoS 2 state across connections."""

    def __init__(self, world: World, name: str) -> None:
        self.client = Client(world, name)
        self.filters: dict[str, int] = {}
        self.expected: dict[Key, list[bytes]] = defaultdict(list)
        self.got: dict[Key, list[bytes]] = defaultdict(list)
        self.unreleased: set[int] = set()  # packet ids of QoS 2 messages received and not released

    def take(self, packet: mqtt5.PublishPacket, answers: bool) -> None:
        publisher, _, _ = packet.payload.partition(b":")
        key = (publisher.decode(), packet.topic, int(packet.qos))
        if key[2] == 2:
            assert packet.packet_id is not None
            if packet.packet_id not in self.unreleased:
                self.unreleased.add(packet.packet_id)
                self.got[key].append(packet.payload)
            else:
                assert packet.duplicate
            if answers:
                self.client.send(mqtt5.PubRecPacket(packet.packet_id))
            return
        if packet.payload in self.got[key]:
            assert key[2] == 1
            assert packet.duplicate
        else:
            self.got[key].append(packet.payload)
        if answers:
            self.client.acknowledge(packet)

    def read(self, limit: int, answers: bool = True) -> None:
        for _ in range(limit):
            packet = self.client.read()
            if packet is None:
                return
            if isinstance(packet, mqtt5.PublishPacket):
                self.take(packet, answers)
            elif isinstance(packet, mqtt5.PubRelPacket):
                self.unreleased.discard(packet.packet_id)
                if answers:
                    self.client.send(mqtt5.PubCompPacket(packet.packet_id))


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(inflight_max=3)
        self.subscribers = {name: Subscriber(self.world, name) for name in NAMES}
        self.publishers = {name: Client(self.world, name) for name in ("p0", "p1")}
        self.published = 0
        for publisher in self.publishers.values():
            publisher.connect(expiry_s=FOREVER_S)
        for subscriber in self.subscribers.values():
            subscriber.client.connect(expiry_s=FOREVER_S)

    @rule(name=st.sampled_from(NAMES), topic_filter=st.sampled_from(FILTERS), qos=st.integers(0, 2))
    def subscribe(self, name: str, topic_filter: str, qos: int) -> None:
        subscriber = self.subscribers[name]
        if not subscriber.client.is_closed:
            subscriber.read(10_000)  # so that the next packet is the SUBACK
            assert subscriber.client.subscribe(topic_filter, qos=qos) == [qos]
            subscriber.filters[topic_filter] = qos

    @rule(name=st.sampled_from(NAMES), topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, name: str, topic_filter: str) -> None:
        subscriber = self.subscribers[name]
        if not subscriber.client.is_closed:
            subscriber.client.send(mqtt5.UnsubscribePacket(subscriber.client.take_id(), [topic_filter]))
            subscriber.filters.pop(topic_filter, None)

    @rule(
        name=st.sampled_from(("p0", "p1")),
        topic=st.sampled_from(TOPICS),
        qos=st.integers(0, 2),
        count=st.integers(1, 5),
    )
    def publish(self, name: str, topic: str, qos: int, count: int) -> None:
        publisher = self.publishers[name]
        packets = []
        for _ in range(count):
            payload = self.due(name, topic, qos)
            packet_id = publisher.take_id() if qos else None
            packets.append(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(qos), packet_id=packet_id))
        publisher.send(*packets)
        for answer in publisher.read_all():
            if isinstance(answer, mqtt5.PubRecPacket):
                publisher.send(mqtt5.PubRelPacket(answer.packet_id))
        publisher.read_all()

    @rule(name=st.sampled_from(("p0", "p1")), topic=st.sampled_from(TOPICS), stage=st.integers(0, 2))
    def publish_over_a_broken_connection(self, name: str, topic: str, stage: int) -> None:
        """At QoS 2, cut off before PUBREC, PUBCOMP or nothing is read; then the client goes on where it stopped."""
        publisher = self.publishers[name]
        payload = self.due(name, topic, 2)
        packet_id = publisher.take_id()
        publisher.send(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(2), packet_id=packet_id))
        if stage > 0:
            publisher.read_all()
            publisher.send(mqtt5.PubRelPacket(packet_id))
        publisher.drop()
        assert publisher.connect(clean=False, expiry_s=FOREVER_S).session_present
        if stage == 0:
            publisher.send(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(2), packet_id=packet_id, duplicate=True))
        publisher.send(mqtt5.PubRelPacket(packet_id))
        assert isinstance(publisher.read_all()[-1], mqtt5.PubCompPacket)

    def due(self, name: str, topic: str, qos: int) -> bytes:
        """The next payload, which every subscriber must get that wants it and can be reached."""
        self.published += 1
        payload = f"{name}:{self.published:06d}".encode()
        for subscriber in self.subscribers.values():
            granted = [q for pattern, q in subscriber.filters.items() if self.matches(pattern, topic)]
            if granted and ((least := min(qos, max(granted))) or not subscriber.client.is_closed):
                subscriber.expected[name, topic, least].append(payload)
        return payload

    @staticmethod
    def matches(pattern: str, topic: str) -> bool:
        return (
            pattern in (topic, "#") or (pattern == "a/#" and topic[0] == "a") or (pattern == "+" and "/" not in topic)
        )

    @rule(name=st.sampled_from(NAMES), limit=st.integers(1, 8))
    def read(self, name: str, limit: int) -> None:
        if not self.subscribers[name].client.is_closed:
            self.subscribers[name].read(limit)

    @rule(name=st.sampled_from(NAMES), limit=st.integers(0, 8))
    def drop(self, name: str, limit: int) -> None:
        """The client still reads a little, but its answers get lost with the connection."""
        subscriber = self.subscribers[name]
        if not subscriber.client.is_closed:
            subscriber.read(limit, answers=False)
            for key, expected in subscriber.expected.items():
                if key[2] == 0:  # what was on the wire at QoS 0 is lost
                    got = set(subscriber.got[key])
                    expected[:] = [payload for payload in expected if payload in got]
            subscriber.client.drop()

    @rule(name=st.sampled_from(NAMES))
    def resume(self, name: str) -> None:
        subscriber = self.subscribers[name]
        if subscriber.client.is_closed:
            assert subscriber.client.connect(clean=False, expiry_s=FOREVER_S).session_present

    @invariant()
    def what_came_is_a_beginning_of_what_is_due(self) -> None:
        for subscriber in self.subscribers.values():
            for key, got in subscriber.got.items():
                assert got == subscriber.expected[key][: len(got)], key

    def teardown(self) -> None:
        for subscriber in self.subscribers.values():
            if subscriber.client.is_closed:
                subscriber.client.connect(clean=False, expiry_s=FOREVER_S)
            subscriber.read(100_000)
            for key, expected in subscriber.expected.items():
                assert subscriber.got[key] == expected, key


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=150, stateful_step_count=40)
