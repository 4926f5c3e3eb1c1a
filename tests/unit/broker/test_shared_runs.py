"""Messages that arrive together at a shared group: a burst is spread over all members, and a steady load is divided evenly."""

from collections import Counter

from tests.property.test_batches import World, packets, publish_packet, short_packet, subscribe_packet

PUBLISHER, MEMBERS = 0, (2, 3, 4)
GROUP, TOPIC = "$share/group/a", "a"
PERIOD_NS = 1_000_000


def shared() -> World:
    world = World(True)
    for client in (PUBLISHER, *MEMBERS):
        world.connect(client)
    for client in MEMBERS:
        world.feed(client, subscribe_packet(client, GROUP, 1))
    world.output()
    return world


def publish(world: World, first_id: int, count: int, now_ns: int) -> Counter[int]:
    """How many of the messages each member got. They are acknowledged at once."""
    run = b"".join(publish_packet(PUBLISHER, TOPIC, b"x", 1, first_id + index, False) for index in range(count))
    world.broker.received(world.connections[PUBLISHER], run, now_ns)
    got: Counter[int] = Counter()
    for client, data in world.output().items():
        ids = [packet_id for first, packet_id in packets(data) if first >> 4 == 3]
        got[client] += len(ids)
        if ids:
            world.feed(client, b"".join(short_packet(0x40, packet_id) for packet_id in ids))
    return got


def test_run_that_comes_alone_is_spread_over_all_members() -> None:
    world = shared()
    assert publish(world, 1, 6, 0) == {client: 2 * (client in MEMBERS) for client in (PUBLISHER, *MEMBERS)}
    assert publish(world, 7, 6, 10 * PERIOD_NS) == {client: 2 * (client in MEMBERS) for client in (PUBLISHER, *MEMBERS)}


def test_many_runs_are_divided_evenly_with_one_member_for_each() -> None:
    world = shared()
    total: Counter[int] = Counter()
    for number in range(33):
        got = publish(world, 1 + 3 * number, 3, number * PERIOD_NS // 11)
        total += got
        if number >= 11:  # eleven runs came in the period before
            assert sorted(got[client] for client in MEMBERS) == [0, 0, 3]
    counts = [total[client] for client in MEMBERS]
    assert sum(counts) == 99
    assert max(counts) - min(counts) <= 3  # a run
