"""Notifications to different topics that are forwarded as one piece reach the same clients and leave the same log.

Two brokers get the same input, cut in the same places. One of them forwards the notifications topic by topic. Every
connection must have got the same bytes from both, both logs must tell of the same events, and both must have counted the
same traffic for placement.
"""

from random import Random
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.core import mixed_topics
from brokerbed.broker.core.placement import Placement
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.values import NS_PER_S
from tests.property.test_batches import FILTERS, PUBLISHERS, SUBSCRIBERS, VERSIONS, World, subscribe_packet

TOPICS = ("a", "b/c", "b/d", "e", "new/é", "$own", "x" * 130)
PAYLOADS = (b"abc", b"abc", b"def", b"", b"longer", b"." * 200)
PING, MALFORMED = b"\xc0\0", b"\x30\x02\0\x05"


def notification(version: int, topic: str, payload: bytes, properties: bytes = b"") -> bytes:
    raw = topic.encode()
    listed = bytes((len(properties),)) + properties if version == 5 else b""
    body = len(raw).to_bytes(2, "big") + raw + listed + payload
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    return b"\x30" + length + body


def input_of(client: int, packets: list[object]) -> bytes:
    """What a publisher sends: tuples are notifications, the second with a content type where there are properties."""
    pieces = []
    for packet in packets:
        if isinstance(packet, bytes):
            pieces.append(packet)
        else:
            assert isinstance(packet, tuple)
            topic, payload, has_property = packet
            properties = b"\x03\0\x01t" if has_property and VERSIONS[client] == 5 else b""
            pieces.append(notification(VERSIONS[client], topic, payload, properties))
    return b"".join(pieces)


NOTIFICATIONS = st.tuples(
    st.sampled_from(TOPICS), st.sampled_from(PAYLOADS), st.sampled_from((False, False, False, False, True))
)
PACKETS = st.lists(NOTIFICATIONS | NOTIFICATIONS | NOTIFICATIONS | st.just(PING), min_size=1, max_size=14)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(SUBSCRIBERS), st.sampled_from((*FILTERS, "b/+", "$share/g/e"))), max_size=6),
    st.lists(st.tuples(st.sampled_from(PUBLISHERS), PACKETS, st.lists(st.integers(0, 300), max_size=3)), max_size=5),
    st.booleans(),
)
def test_pieces_make_no_difference(
    subscriptions: list[tuple[int, str]], inputs: list[tuple[int, list[object], list[int]]], ends_malformed: bool
) -> None:
    worlds = World(True), World(True)
    for world in worlds:
        world.broker.placement = Placement(world.broker, PlacementConfig(Random(1), 60 * NS_PER_S))
        for client in (*PUBLISHERS, *SUBSCRIBERS):
            world.connect(client)
        for client, topic_filter in (*subscriptions, (PUBLISHERS[1], "e")):
            world.feed(client, subscribe_packet(client, topic_filter, 1))
    if ends_malformed:
        inputs = [*inputs, (PUBLISHERS[0], [("a", b"abc", False), ("e", b"abc", False), MALFORMED], [])]
    for client, packets, cuts in inputs:
        data = input_of(client, packets)
        places = sorted(cut for cut in cuts if cut < len(data))
        for start, stop in zip([0, *places], [*places, len(data)], strict=True):
            worlds[0].feed(client, data[start:stop])
            with patch.object(mixed_topics, "forward", lambda *arguments: arguments[3]):
                worlds[1].feed(client, data[start:stop])
            assert worlds[0].output() == worlds[1].output()
    assert worlds[0].events() == worlds[1].events()
    assert vars(worlds[0].broker.counters) == vars(worlds[1].broker.counters)
    counted = [world.broker.placement._demand.by_flow() for world in worlds if world.broker.placement is not None]
    assert counted[0] == counted[1]
    assert sum(count for _, count in counted[0].values()) == worlds[0].broker.counters.messages_received


def test_piece_goes_out_in_one_write() -> None:
    """Three topics, one subscriber to all of them; the first round fills the caches."""
    world = World(True)
    for client in (0, 2):
        world.connect(client)
    world.feed(2, subscribe_packet(2, "#", 0))
    data = input_of(0, [(topic, b"abc", False) for topic in ("a", "b/c", "e")])
    world.feed(0, data)
    world.output()
    world.feed(0, data)
    assert world.connections[2].output == [data]
