"""Publications at QoS 1 and 2 in batches give every client the very bytes that it gets without batches, and the same log.

Two brokers get the same input, cut in the same places. One of them handles every packet alone. After each step every connection must
have got the same output from both, and at the end both logs must tell of the same events. Brokers with a store die now and then, and go
on from what they have stored.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import dispatch, persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.restore import NUMBER, restore
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.store import MemoryStore
from brokerbed.broker.mqtt import frames
from brokerbed.log.record import RECORD, Log

SINGLE = {  # every frame of acknowledgements is decoded
    first: handler for first, handler in dispatch.WITH_SERVICE.items() if first >> 4 == frames.PUBLISH
}
WINDOW = 6
TOPICS = ("a", "b/c")
FILTERS = ("a", "b/c", "#")
PUBLISHERS, SUBSCRIBERS = range(2), range(2, 5)  # the first of each speaks 3.1.1, the others 5
VERSIONS = {0: 4, 1: 5, 2: 4, 3: 5, 4: 5}


class World:
    """One of the two brokers, with its connections."""

    def __init__(self, is_batching: bool, is_durable: bool = False) -> None:
        self.is_batching = is_batching
        self.is_durable = is_durable
        self.store = MemoryStore()
        self.logs: list[Log] = []  # one for each life
        self.start()

    def start(self) -> None:
        self.logs.append(Log())
        config = BrokerConfig(
            inflight_max=WINDOW, receive_maximum=50, keep_alive_max_s=0, incarnation=str(len(self.logs))
        )
        self.broker = Broker(config, self.logs[-1], self.is_durable)
        if self.is_durable:
            restore(self.broker, self.store.load(), 0)
            self.commit()
        self.connections: dict[int, Connection] = {}

    def commit(self) -> None:
        if self.broker.unsaved:
            self.store.commit(persist.take(self.broker))
            self.check_runs()

    def check_runs(self) -> None:
        """Every stored run is wanted by somebody, and packet ids are in use once."""
        kinds: dict[int, dict[int, Row]] = {kind: {} for kind in (persist.RUN, persist.SENT_RUN, persist.DELIVERY)}
        for key, row in self.store.rows.items():
            kinds.get(key & ~NUMBER, {})[key & NUMBER] = row
        sent_runs = kinds[persist.SENT_RUN].values()
        assert set(kinds[persist.RUN]) == {row[1] for row in sent_runs}
        in_use = [(row[0], row[4]) for row in kinds[persist.DELIVERY].values() if row[4]]
        for session, _, _, first_id, _, states in sent_runs:
            assert any(states)
            in_use += [(session, packet_id) for packet_id, state in enumerate(states, first_id) if state]
        assert len(in_use) == len(set(in_use))

    def connect(self, client: int) -> None:
        self.connections[client] = self.broker.opened(0)
        self.feed(client, connect_packet(client))

    def feed(self, client: int, data: bytes) -> None:
        if self.is_batching:
            self.broker.received(self.connections[client], data, 0)
        else:
            with patch.object(dispatch, "IN_RUNS", SINGLE):
                self.broker.received(self.connections[client], data, 0)
        self.commit()

    def lose(self, client: int) -> None:
        self.broker.lost(self.connections.pop(client), 0)
        self.commit()

    def output(self) -> dict[int, bytes]:
        """What was written to each client since the last time."""
        output = {client: b"".join(connection.output) for client, connection in self.connections.items()}
        for connection in self.connections.values():
            connection.output, connection.is_dirty = [], False
        self.broker.dirty.clear()
        return output

    def events(self) -> Counter[tuple[object, ...]]:
        """What was logged, message by message; numbers of names replaced by the names."""
        events: Counter[tuple[object, ...]] = Counter()
        for log in self.logs:
            names = {-1: None, **dict(log.names)}
            for record in RECORD.iter_unpack(log.records):
                time_ns, sequence, origin, subject, topic, route, size, count, *rest = record
                for number in range(count):
                    events[
                        (time_ns, sequence + number, names[origin], names[subject], names[topic], route, size, *rest)
                    ] += 1
        return events


def connect_packet(client: int) -> bytes:
    """A session is kept, except that of the first publisher.

    MQTT 5 has properties, here a Session Expiry Interval without end (section 3.1.2.11.2).
    """
    version, name = VERSIONS[client], b"c%d" % client
    properties = b"\x05\x11\xff\xff\xff\xff" if version == 5 else b""
    flags = 2 if client == PUBLISHERS[0] else 0
    body = b"\0\x04MQTT" + bytes((version, flags, 0, 0)) + properties + len(name).to_bytes(2, "big") + name
    return bytes((0x10, len(body))) + body


def subscribe_packet(client: int, topic_filter: str, qos: int) -> bytes:
    wanted = len(topic_filter).to_bytes(2, "big") + topic_filter.encode() + bytes((qos,))
    body = b"\0\x09" + (b"\0" if VERSIONS[client] == 5 else b"") + wanted
    return bytes((0x82, len(body))) + body


def publish_packet(client: int, topic: str, payload: bytes, qos: int, packet_id: int, retain: bool) -> bytes:
    head = len(topic).to_bytes(2, "big") + topic.encode() + packet_id.to_bytes(2, "big")
    body = head + (b"\0" if VERSIONS[client] == 5 else b"") + payload
    return bytes((0x30 | qos << 1 | retain, len(body))) + body


def short_packet(first: int, packet_id: int) -> bytes:
    return bytes((first, 2)) + packet_id.to_bytes(2, "big")


def packets(data: bytes) -> Iterator[tuple[int, int]]:
    """The first byte and the packet id (0: none) of what a broker wrote."""
    at = 0
    while at < len(data):
        bounds = frames.bounds(data, at, len(data))
        assert bounds is not None
        body, stop = bounds
        if data[at] >> 4 == frames.PUBLISH:
            yield data[at], frames.publish_parts(data, body, stop, data[at] >> 1 & 3)[1]
        else:
            yield data[at], int.from_bytes(data[body : body + 2], "big")
        at = stop


@dataclass
class Story:
    is_durable: bool = False
    batching: World = field(init=False)
    reference: World = field(init=False)
    next_id: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PUBLISHERS, 1))
    unreleased: dict[int, list[int]] = field(default_factory=lambda: {client: [] for client in PUBLISHERS})
    said: dict[int, list[bytes]] = field(default_factory=lambda: {client: [] for client in SUBSCRIBERS})
    due: dict[int, list[bytes]] = field(default_factory=lambda: {client: [] for client in SUBSCRIBERS})

    def __post_init__(self) -> None:
        self.batching, self.reference = World(True, self.is_durable), World(False, self.is_durable)

    def both(self, client: int, data: bytes, cuts: list[int]) -> None:
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            for world in (self.batching, self.reference):
                world.feed(client, data[start:stop])
        self.compare()

    def compare(self) -> None:
        output = self.batching.output()
        assert output == self.reference.output()
        for client, data in output.items():
            for first, packet_id in packets(data):
                self.answer(client, first, packet_id)

    def answer(self, client: int, first: int, packet_id: int) -> None:
        """Remember what the client has to say to a packet."""
        kind, qos = first >> 4, first >> 1 & 3
        if client in PUBLISHERS:
            if kind == frames.PUBREC:
                self.unreleased[client].append(packet_id)
        elif kind == frames.PUBLISH and qos:
            self.due[client].append(short_packet(0x40 if qos == 1 else 0x50, packet_id))
        elif kind == frames.PUBREL:
            self.due[client].append(short_packet(0x70, packet_id))

    def connect(self, client: int) -> None:
        for world in (self.batching, self.reference):
            world.connect(client)
        self.compare()

    def lose(self, client: int) -> None:
        for world in (self.batching, self.reference):
            world.lose(client)
        self.due[client].clear()

    def crash(self) -> None:
        """Both brokers die, and all clients come back. Publishers forget what they have not released."""
        clients = list(self.batching.connections)
        for world in (self.batching, self.reference):
            world.start()
        for client in SUBSCRIBERS:
            self.due[client].clear()
        for client in clients:
            self.connect(client)


@st.composite
def publications(draw: st.DrawFn) -> tuple[str, int, int, str, list[int]]:
    """Publisher, QoS, topic, and for each message its size; a negative one is that of a message unlike the others."""
    sizes = draw(st.lists(st.sampled_from((3, 3, 3, 3, 5, -3)), min_size=1, max_size=10))
    return (
        "publish", draw(st.sampled_from(PUBLISHERS)), draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from(TOPICS)),
        sizes,
    )  # fmt: skip


STEPS = (
    publications()
    | st.tuples(st.just("subscribe"), st.sampled_from(SUBSCRIBERS), st.sampled_from(FILTERS), st.integers(0, 2))
    | st.tuples(st.just("ack"), st.sampled_from(SUBSCRIBERS), st.integers(1, 12), st.sampled_from((1, 1, 1, -1, 2)))
    | st.tuples(st.just("repeat"), st.sampled_from(SUBSCRIBERS), st.lists(st.integers(-12, -1), min_size=1, max_size=6))
    | st.tuples(st.just("release"), st.sampled_from(PUBLISHERS), st.integers(1, 12))
    | st.tuples(st.just("reconnect"), st.sampled_from(SUBSCRIBERS))
)
CRASH = st.just(("crash", 0))


def play(story: Story, step: tuple, data: st.DataObject | None) -> None:  # type: ignore[type-arg]
    def cuts(size: int) -> list[int]:
        return [] if data is None else sorted(data.draw(st.lists(st.integers(0, size), max_size=3)))

    verb, client, *rest = step
    if verb == "publish":
        content = b"".join(_publish(story, client, *rest))
        story.both(client, content, cuts(len(content)))
    elif verb == "subscribe":
        topic_filter, qos = rest
        story.both(client, subscribe_packet(client, topic_filter, qos), [])
    elif verb == "ack":
        count, order = rest
        answers = story.due[client][:count]
        del story.due[client][:count]
        content = b"".join(answers[::order])
        story.said[client] += answers[::order]
        story.both(client, content, cuts(len(content)))
    elif verb == "repeat":  # acknowledgements that came before, in any order, perhaps of ids that are in use again
        said = story.said[client]
        content = b"".join(said[index] for index in rest[0] if -index <= len(said))
        story.both(client, content, cuts(len(content)))
    elif verb == "release":
        released = story.unreleased[client][: rest[0]]
        del story.unreleased[client][: rest[0]]
        content = b"".join(short_packet(0x62, packet_id) for packet_id in released)
        story.both(client, content, cuts(len(content)))
    elif verb == "crash":
        story.crash()
    elif client in story.batching.connections:
        story.lose(client)
        story.connect(client)


def _publish(story: Story, client: int, qos: int, topic: str, sizes: list[int]) -> list[bytes]:
    out = []
    for size in sizes:
        packet_id = story.next_id[client]
        story.next_id[client] = packet_id % 0xFFFF + 1
        payload = (b"%d " % packet_id).ljust(abs(size), b".")[: abs(size)]
        out.append(publish_packet(client, topic, payload, qos, packet_id, retain=size < 0))
    return out


@settings(max_examples=300)
@given(st.data(), st.lists(STEPS, max_size=30))
def test_batches_make_no_difference(data: st.DataObject, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    _compare_stories(Story(), data, steps)


@settings(max_examples=300)
@given(st.data(), st.lists(STEPS | CRASH | CRASH, max_size=30))
def test_batches_make_no_difference_to_what_is_stored(data: st.DataObject, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    _compare_stories(Story(is_durable=True), data, steps)


def _compare_stories(story: Story, data: st.DataObject, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    for client in (*PUBLISHERS, *SUBSCRIBERS):
        story.connect(client)
    for client, topic_filter in zip(SUBSCRIBERS, FILTERS, strict=True):
        play(story, ("subscribe", client, topic_filter, 2), None)
    for step in steps:
        play(story, step, data)
    assert story.batching.events() == story.reference.events()


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgement_amidst_a_run_may_come_twice(qos: int) -> None:
    """The second of four messages is acknowledged first, and once more among all four."""
    story = Story()
    for client in (0, 2):
        story.connect(client)
    play(story, ("subscribe", 2, "a", 2), None)
    play(story, ("publish", 0, qos, "a", [3, 3, 3, 3]), None)
    answers, story.due[2] = story.due[2], []
    assert len(answers) == 4
    story.both(2, answers[1], [])
    story.both(2, b"".join(answers), [])
    completions, story.due[2] = story.due[2], []
    if qos == 2:
        story.both(2, completions[2], [])
        story.both(2, b"".join(completions), [])
    for world in (story.batching, story.reference):
        (session,) = (it for it in world.broker.sessions.values() if it.client_id == "c2")
        assert session.inflight == {}
    assert story.batching.events() == story.reference.events()


def test_run_goes_on_after_a_crash_where_it_was() -> None:
    """Of three messages at QoS 2 the first is complete and the second released when the broker dies."""
    story = Story(is_durable=True)
    for client in (0, 2):
        story.connect(client)
    play(story, ("subscribe", 2, "a", 2), None)
    play(story, ("publish", 0, 2, "a", [3, 3, 3]), None)
    play(story, ("ack", 2, 2, 1), None)
    assert story.due[2] == [short_packet(0x50, 3), short_packet(0x70, 1), short_packet(0x70, 2)]
    story.both(2, short_packet(0x70, 1), [])
    for world in (story.batching, story.reference):
        world.start()
        world.connect(2)
        resent = publish_packet(2, "a", b"3 .", 2, 3, retain=False)
        duplicate = bytes((resent[0] | 8,)) + resent[1:]
        assert world.output()[2] == b"\x20\x02\x01\0" + short_packet(0x62, 2) + duplicate


def test_runs_are_sent_again_in_order_whatever_their_packet_ids() -> None:
    """After the first crash packet ids begin again at 1, so the third and the fourth message have higher ids than the next two."""
    story = Story(is_durable=True)
    for client in (0, 2):
        story.connect(client)
    play(story, ("subscribe", 2, "a", 1), None)
    play(story, ("publish", 0, 1, "a", [3, 3, 3, 3]), None)
    play(story, ("ack", 2, 2, 1), None)
    story.crash()
    play(story, ("publish", 0, 1, "a", [3, 3]), None)
    for world in (story.batching, story.reference):
        world.start()
        world.connect(2)
        resent = [packet_id for first, packet_id in packets(world.output()[2]) if first >> 4 == frames.PUBLISH]
        assert resent == [3, 4, 1, 2]
