"""What a message or a subscription costs grows with the number of those concerned and no faster, and caches of topics
are bounded by their bytes.

Growth is counted in comparisons where it can be; nothing depends on how fast the machine is.
"""

import tracemalloc
from collections.abc import Callable
from time import perf_counter
from unittest.mock import Mock

import pytest

from brokerbed.broker.core import handle_connect, handle_subscribe
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import SharedGroup, Subscription, Subscriptions
from brokerbed.log.record import Log
from tests.core_client import Client, World
from tests.core_network import Network

MANY = 2000
LONG_TOPICS, LONG = 400, 60_000  # together 24 MB
MEMORY_BYTES_MAX = 12_000_000


class Counted(Session):
    """A session that counts how often one is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return self is other

    __hash__ = Session.__hash__


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    Counted.comparisons = 0
    monkeypatch.setattr(handle_connect, "Session", Counted)
    return Counted


def test_a_route_to_many_with_one_overlapping_wildcard(counted: type[Counted]) -> None:
    subscriptions = Subscriptions()
    sessions = [counted(f"c{number}", None) for number in range(MANY)]
    for session in sessions:
        subscriptions.add(Subscription(session, "t", 0, False, False, 0))
    subscriptions.add(Subscription(sessions[-1], "#", 0, False, False, 0))
    assert list(subscriptions.route("t").receivers.plain) == sessions
    assert counted.comparisons < 10 * MANY


def test_the_log_of_a_message_that_many_do_not_get_at_once(counted: type[Counted]) -> None:
    world = World(Log())
    publisher = Client(world, "p")
    publisher.connect()
    for number in range(MANY):
        subscriber = Client(world, f"c{number}")
        subscriber.connect()
        subscriber.subscribe("t")
        assert subscriber.connection is not None
        world.broker.writable(subscriber.connection, number % 2 == 0, world.now_ns)
    counted.comparisons = 0
    publisher.publish("t")
    assert world.broker.counters.messages_delivered == MANY // 2
    assert counted.comparisons < 10 * MANY


def seconds(work: Callable[[], object]) -> float:
    """The quickest of three times."""
    times = []
    for _ in range(3):
        begun = perf_counter()
        work()
        times.append(perf_counter() - begun)
    return min(times)


def test_the_next_member_of_a_shared_group_does_not_depend_on_its_size() -> None:
    def pick(size: int) -> Callable[[], object]:
        group = SharedGroup()
        for number in range(size):
            session = Session(f"c{number}", None)
            session.connection = object()  # type: ignore[assignment]
            group.members[session] = Subscription(session, "$share/g/t", 0, False, False, 0)
        return lambda: [group.next_member() for _ in range(1000)]

    assert seconds(pick(20_000)) < 20 * seconds(pick(20))  # a thousand times if it went through all members


def test_members_of_a_shared_group_are_served_in_turn_while_they_come_and_go() -> None:
    subscriptions = Subscriptions()
    sessions = [Session(f"c{number}", None) for number in range(3)]
    for session in sessions:
        session.connection = object()  # type: ignore[assignment]
        subscriptions.add(Subscription(session, "$share/g/t", 0, False, False, 0))

    def served(count: int) -> list[str]:
        (group,) = subscriptions.route("t").receivers.groups
        return [group.next_member().session.client_id for _ in range(count)]

    assert served(4) == ["c0", "c1", "c2", "c0"]
    subscriptions.remove(sessions[1], "$share/g/t")
    assert sorted(served(2)) == ["c0", "c2"]
    subscriptions.add(Subscription(sessions[1], "$share/g/t", 0, False, False, 0))
    assert sorted(served(3)) == ["c0", "c1", "c2"]


def test_entries_that_a_child_does_not_repeat_are_dropped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_stale = Mock(wraps=handle_subscribe.drop_stale)
    monkeypatch.setattr(handle_subscribe, "drop_stale", drop_stale)
    network = Network({"root": None, "leaf": "root"}, refresh_s=10.0, keep_alive_max_s=0)
    client = network.client("leaf", "c")
    client.connect(keep_alive=0)
    for number in range(0, MANY, 100):  # at twenty different times
        client.subscribe(*(f"f/{number + it}" for it in range(100)))
        network.wait(0.01)
    network.cut("leaf")
    network.wait(29)
    assert len(network.entries("root")["leaf"]) == MANY
    network.wait(2)
    assert network.entries("root") == {}
    assert drop_stale.call_count <= MANY // 100 + 1


# -- caches ---------------------------------------------------------------------------------------------------------


def held_bytes(work: Callable[[], object]) -> int:
    """How much more memory is in use when the work is done."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def long_topic(number: int) -> str:
    return f"{number}/".ljust(LONG, "x")


@pytest.mark.parametrize("qos", [0, 1])
def test_long_topics_stay_in_no_cache(qos: int) -> None:
    """Published by a client of version 5, received by one of 3.1.1 and by a child."""
    network = Network({"root": None, "leaf": "root"})
    publisher, old, leaf = network.client("root", "p"), network.client("root", ""), network.client("leaf", "s")
    publisher.connect()
    old.open()
    old.send_bytes(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01o" + b"\x82\x06\x00\x01\x00\x01#\x00")
    leaf.connect(topic_alias_max=1000)
    leaf.subscribe("#", qos=qos)

    def publish_all() -> None:
        for number in range(LONG_TOPICS):
            publisher.publish(long_topic(number), b"x", qos=qos)
            publisher.read_all()
            assert len(leaf.payloads()) == 1
            old.inbox = b""

    for node in network.nodes.values():
        node.broker.log = None  # it has limits of its own
    assert held_bytes(publish_all) < MEMORY_BYTES_MAX


def test_names_in_the_log_are_remembered_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerbed.log.record.NAME_CHARS_MAX", 1_000_000, raising=False)
    log = Log()

    def name_all() -> None:
        for number in range(LONG_TOPICS):
            assert log.number(long_topic(number)) == number
            log.take()

    assert held_bytes(name_all) < MEMORY_BYTES_MAX
    assert log.number("short") == log.number("short")


def test_routes_in_the_log_are_remembered_up_to_a_number_of_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerbed.log.record.ROUTE_RECEIVERS_MAX", 10_000, raising=False)
    log = Log()

    def route_all() -> None:
        for number in range(500):
            assert log.route(tuple(range(number, number + 5000))) == number
            log.take()

    assert held_bytes(route_all) < MEMORY_BYTES_MAX


def test_receivers_of_topics_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerbed.broker.core.subscriptions.RECEIVERS_MAX", 10_000, raising=False)
    subscriptions = Subscriptions()
    for number in range(MANY):
        subscriptions.add(Subscription(Session(f"c{number}", None), "#", 1, False, False, number + 1))

    def ask_for_all() -> None:
        for number in range(60):
            assert len(subscriptions.targets(f"t/{number}")) == MANY
            assert len(subscriptions.route(f"t/{number}").receivers.special) == MANY

    assert held_bytes(ask_for_all) < MEMORY_BYTES_MAX


def test_short_topics_are_cached() -> None:
    world = World()
    client = Client(world, "c")
    client.connect()
    client.subscribe("#")
    client.publish("a/b", b"1")
    assert client.payloads() == [b"1"]
    assert set(world.broker.topics) == {b"a/b"}
    assert set(world.broker.routes) == {"a/b"}
