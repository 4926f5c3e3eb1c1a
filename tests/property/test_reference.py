"""The core against the reference broker: random operations of clients of all versions, and the same for everybody.

Each client reads and acknowledges at once, so that what it gets is known exactly, in order. The broker has a store, and
dies now and then between two operations.
"""

from collections import Counter
from random import Random

import mqtt5
import pytest

from tests import reference_broker
from tests.core_client import QOS, Client
from tests.durable_world import DurableWorld
from tests.mqtt import client311
from tests.reference_broker import FOREVER_S, Got, ReferenceBroker, Sent, Wanted, Will

NAMES = ("c0", "c1", "c2")
VERSIONS = (3, 4, 5)  # MQTT 3.1, 3.1.1 and 5
TOPICS = ("a", "a/b", "a/b/c", "b", "/")
FILTERS = ("a", "a/b", "a/#", "+", "a/+", "+/b", "+/#", "#", "b", "/+")
GROUPED = "grouped/s"
GROUP = "$share/group/grouped/+"
EXPIRIES_S = (0, 10, FOREVER_S)
SCHEDULES, STEPS = 60, 70
ACTIONS = (
    *["connect"] * 6, *["subscribe"] * 4, "unsubscribe", *["publish"] * 12, "share", "share", *["publish shared"] * 3,
    "disconnect", "drop", "wait", "wait", "restart",
)  # fmt: skip


class Peer:
    """A client of any version on a fake link, which completes every handshake at once."""

    def __init__(self, world: DurableWorld, name: str) -> None:
        self.client = Client(world, name)
        self.version = 5
        self.got: list[Got] = []
        self.answers: list[object] = []

    @property
    def is_connected(self) -> bool:
        return not self.client.is_closed

    def connect(self, version: int, is_clean: bool, expiry_s: int, will: Will | None) -> bool:
        self.version = version
        self.client = Client(self.client.world, self.client.client_id)  # what the old connection still gets is not read
        self.client.open()
        if version == 5:
            will5 = None
            if will is not None:
                message = will.message
                will5 = mqtt5.Will(
                    message.topic, payload=message.payload, qos=QOS[message.qos], retain=message.retain,
                    will_delay_interval=int(will.delay_s),
                )  # fmt: skip
            self.client.send(
                mqtt5.ConnectPacket(
                    self.client.client_id, clean_start=is_clean, session_expiry_interval=expiry_s, will=will5
                )
            )
        else:
            old = None
            if will is not None:
                old = client311.Will(will.message.topic, will.message.payload, will.message.qos, will.message.retain)
            name, level = ("MQTT", 4) if version == 4 else ("MQIsdp", 3)
            self.client.send_bytes(
                client311.connect(self.client.client_id, clean=is_clean, will=old, name=name, level=level)
            )
        self.read()
        answer = self.answers.pop(0)
        assert isinstance(answer, mqtt5.ConnAckPacket | client311.Connack), answer
        return answer.session_present

    def subscribe(self, wanted: Wanted) -> None:
        packet_id = self.client.take_id()
        if self.version == 5:
            pattern = mqtt5.TopicFilter(
                wanted.topic_filter, max_qos=QOS[wanted.qos], no_local=wanted.no_local,
                retain_as_published=wanted.as_published, retain_handling=RETAIN_HANDLING[wanted.handling],
            )  # fmt: skip
            self.client.send(mqtt5.SubscribePacket(packet_id, [pattern], subscription_id=wanted.identifier or None))
        else:
            self.client.send_bytes(client311.subscribe(packet_id, (wanted.topic_filter, wanted.qos)))
        self.read()
        answer = self.answers.pop(0)
        codes = answer.reason_codes if isinstance(answer, mqtt5.SubAckPacket) else answer.codes  # type: ignore[attr-defined]
        assert [int(code) for code in codes] == [wanted.qos]

    def unsubscribe(self, topic_filter: str) -> None:
        packet_id = self.client.take_id()
        if self.version == 5:
            self.client.send(mqtt5.UnsubscribePacket(packet_id, [topic_filter]))
        else:
            self.client.send_bytes(client311.unsubscribe(packet_id, topic_filter))
        self.read()
        self.answers.pop(0)

    def publish(self, message: Sent, expiry_s: int | None) -> None:
        packet_id = self.client.take_id() if message.qos else 0
        if self.version == 5:
            packet = mqtt5.PublishPacket(
                message.topic, message.payload, qos=QOS[message.qos], retain=message.retain,
                packet_id=packet_id or None, message_expiry_interval=expiry_s,
            )  # fmt: skip
            self.client.send(packet)
        else:
            data = client311.publish(message.topic, message.payload, message.qos, packet_id, retain=message.retain)
            self.client.send_bytes(data)
        self.read()
        assert self.answers == []

    def disconnect(self, sends_will: bool) -> None:
        if self.version == 5:
            reason = mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE if sends_will else None
            self.client.send(mqtt5.DisconnectPacket(reason_code=reason) if reason else mqtt5.DisconnectPacket())
        else:
            self.client.send_bytes(client311.DISCONNECT)
        assert self.client.is_closed

    def read(self) -> None:
        """Read everything, and complete the handshakes."""
        while self.client.inbox:
            if self.version == 5:
                packet, size = mqtt5.read(memoryview(self.client.inbox))
                self._handle5(packet) if self._take(size) else None
            else:
                size = 2 + self.client.inbox[1]
                assert self.client.inbox[1] < 0x80
                data = self.client.inbox[:size]
                self._handle311(client311.decode(data)) if self._take(size) else None

    def _take(self, size: int) -> bool:
        self.client.inbox = self.client.inbox[size:]
        return True

    def _handle5(self, packet: mqtt5.Packet) -> None:
        if isinstance(packet, mqtt5.PublishPacket):
            identifiers = tuple(sorted(packet.subscription_ids))
            assert not packet.duplicate
            self.got.append(Got(packet.topic, packet.payload, int(packet.qos), packet.retain, identifiers))
            self._answer(int(packet.qos), packet.packet_id or 0)
        elif isinstance(packet, mqtt5.PubRelPacket):
            self._send(client311.PUBCOMP, packet.packet_id)
        elif isinstance(packet, mqtt5.PubRecPacket):
            self._send(client311.PUBREL, packet.packet_id)
        elif not isinstance(packet, mqtt5.PubAckPacket | mqtt5.PubCompPacket):
            self.answers.append(packet)

    def _handle311(self, packet: client311.Received) -> None:
        if isinstance(packet, client311.Publish):
            assert not packet.dup
            self.got.append(Got(packet.topic, packet.payload, packet.qos, packet.retain, ()))
            self._answer(packet.qos, packet.packet_id)
        elif isinstance(packet, client311.Ack) and packet.first_byte == client311.PUBREL:
            self._send(client311.PUBCOMP, packet.packet_id)
        elif isinstance(packet, client311.Ack) and packet.first_byte == client311.PUBREC:
            self._send(client311.PUBREL, packet.packet_id)
        elif not isinstance(packet, client311.Ack) or packet.first_byte == client311.UNSUBACK:
            self.answers.append(packet)

    def _answer(self, qos: int, packet_id: int) -> None:
        if qos:
            self._send(client311.PUBACK if qos == 1 else client311.PUBREC, packet_id)

    def _send(self, first_byte: int, packet_id: int) -> None:
        if self.is_connected:
            self.client.send_bytes(client311.ack(first_byte, packet_id))  # the same bytes in all versions


RETAIN_HANDLING = (
    mqtt5.RetainHandling.SEND_ALWAYS, mqtt5.RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS,
    mqtt5.RetainHandling.SEND_NEVER,
)  # fmt: skip


class Comparison:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = DurableWorld()
        self.reference = ReferenceBroker()
        self.peers = {name: Peer(self.world, name) for name in NAMES}
        self.sent = 0

    def step(self) -> str:
        random, reference = self.random, self.reference
        action = random.choice(ACTIONS)
        name = random.choice(NAMES)
        peer = self.peers[name]
        if action == "wait":
            seconds = random.choice((1, 4, 11))
            self.world.wait(seconds)
            reference.wait(seconds)
        elif action == "restart":
            self.world.restart()
            reference.restart()
        elif action == "connect":
            self._connect(name)
        elif not peer.is_connected:
            return f"{name} is away"
        elif action in ("subscribe", "share"):
            self._subscribe(name, GROUP if action == "share" else random.choice(FILTERS))
        elif action == "unsubscribe":
            topic_filter = random.choice((*FILTERS, GROUP))
            peer.unsubscribe(topic_filter)
            reference.unsubscribe(name, topic_filter)
        elif action in ("publish", "publish shared"):
            self._publish(name, action == "publish shared")
        else:
            sends_will = peer.version == 5 and random.random() < 0.3
            if action == "disconnect":
                peer.disconnect(sends_will)
                reference.disconnect(name, sends_will)
            else:
                peer.client.drop()
                reference.drop(name)
        self._compare()
        return f"{action} {name}"

    def _connect(self, name: str) -> None:
        random, version = self.random, self.random.choice(VERSIONS)
        is_clean = random.random() < 0.15
        expiry_s = random.choice(EXPIRIES_S) if version == 5 else 0 if is_clean else FOREVER_S
        will = None
        if random.random() < 0.5:
            message = self._message(random.choice(TOPICS), random.randrange(3), random.random() < 0.3)
            will = Will(message, random.choice((0, 3, 20)) if version == 5 else 0)
        is_present = self.peers[name].connect(version, is_clean, expiry_s, will)
        expected = self.reference.connect(name, is_clean, expiry_s, will)
        assert is_present == (expected and version > 3)  # MQTT 3.1 has no such flag

    def _message(self, topic: str, qos: int, retain: bool, expiry_s: int | None = None) -> Sent:
        self.sent += 1
        payload = b"" if retain and self.random.random() < 0.2 else b"%d" % self.sent
        return Sent(topic, payload, qos, retain, None if expiry_s is None else self.reference.now_s + expiry_s)

    def _subscribe(self, name: str, topic_filter: str) -> None:
        random = self.random
        wanted = Wanted(topic_filter, random.randrange(3))
        if topic_filter == GROUP:
            wanted = Wanted(GROUP, 2)
        elif self.peers[name].version == 5:
            wanted = Wanted(
                topic_filter, random.randrange(3), random.random() < 0.3, random.random() < 0.5, random.randrange(3),
                random.randrange(4),
            )  # fmt: skip
        self.peers[name].subscribe(wanted)
        self.reference.subscribe(name, wanted)

    def _publish(self, name: str, is_shared: bool) -> None:
        random, peer = self.random, self.peers[name]
        expiry_s = random.choice((None, None, 3, 30)) if peer.version == 5 and not is_shared else None
        topic = GROUPED if is_shared else random.choice(TOPICS)
        qos = random.choice((1, 2)) if is_shared else random.randrange(3)
        message = self._message(topic, qos, not is_shared and random.random() < 0.3, expiry_s)
        peer.publish(message, expiry_s)
        self.reference.publish(name, message)

    def _compare(self) -> None:
        for name, peer in self.peers.items():
            peer.read()
            assert peer.is_connected == (name in self.reference.connected)
        for name, peer in self.peers.items():
            got, peer.got = peer.got, []
            expected = self.reference.take(name)
            if peer.version < 5:
                expected = [Got(it.topic, it.payload, it.qos, it.retain, ()) for it in expected]
            self._compare_with(name, Counter(got) - Counter(expected), Counter(expected) - Counter(got))
            assert in_order(got) == in_order(expected), name

    def _compare_with(self, name: str, surplus: Counter[Got], missing: Counter[Got]) -> None:
        """What came in addition can only be what a group has got, each message once."""
        assert not missing, name
        for got in surplus.elements():
            assert got.topic == GROUPED, (name, got)
            assert not got.retain
            assert name in self.reference.group_due.pop(got.payload), (name, got)

    def finish(self) -> None:
        """Everybody comes back, and what groups had in their queues comes, too."""
        for name in NAMES:
            is_present = self.peers[name].connect(5, False, FOREVER_S, None)
            assert is_present == self.reference.connect(name, False, FOREVER_S, None)
            self._compare()
        assert set(self.reference.group_due) <= self.reference.uncertain


def in_order(got: list[Got]) -> list[Got]:
    """Without retained messages, which come in any order, and those of groups, whose members are not known."""
    return [it for it in got if not it.retain and it.topic != GROUPED]


def run(seed: int) -> None:
    comparison, story = Comparison(Random(f"reference/{seed}")), []
    try:
        for _ in range(STEPS):
            story.append("?")
            story[-1] = comparison.step()
        comparison.finish()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {' | '.join(it for it in story if not it.endswith('away'))}") from error


def run_all(seeds: range) -> None:
    for seed in seeds:
        run(seed)


def test_another_broker_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_broker, "matches", lambda topic_filter, topic: topic_filter == topic)
    with pytest.raises(AssertionError, match="seed"):
        run_all(range(SCHEDULES))


@pytest.mark.parametrize("part", range(4))
def test_core_does_what_the_reference_does(part: int) -> None:
    run_all(range(part, SCHEDULES, 4))
