"""Timers that are not wanted any more are not kept: a client that comes and goes leaves nothing behind."""

from collections.abc import Callable
from typing import Any

import mqtt5
import pytest

from tests.core_client import Client, World
from tests.core_network import Network, Node

RECONNECTIONS = 1000
WAKE_UPS_MAX = 150  # of which 64 may be for timers that were cancelled
YEAR_S = 365 * 24 * 3600


def wake_ups(world: World | Node) -> int:
    """How many different times the broker wants to be woken at, if nothing more happens."""
    count = 0
    while (deadline_ns := world.broker.deadline_ns) is not None:
        world.broker.due(deadline_ns)
        world.settle()
        count += 1
    return count


def connect_311(world: World, client_id: bytes) -> Client:
    """With the longest keep-alive that there is, and a session that is kept."""
    client = Client(world)
    client.open()
    body = b"\x00\x04MQTT\x04\x00\xff\xff" + len(client_id).to_bytes(2, "big") + client_id
    client.send_bytes(b"\x10" + bytes((len(body),)) + body)
    assert client.inbox[:1] == b"\x20"
    assert client.inbox[3] == 0
    return client


def test_keep_alive_of_311_clients_that_reconnect() -> None:
    world = World()
    for _ in range(RECONNECTIONS):
        connect_311(world, b"c").drop()
        world.wait(0.01)
    assert wake_ups(world) <= WAKE_UPS_MAX


def test_keep_alive_of_311_clients_that_are_taken_over() -> None:
    world = World()
    for _ in range(RECONNECTIONS):
        connect_311(world, b"c")
        world.wait(0.01)
    assert wake_ups(world) <= WAKE_UPS_MAX


@pytest.mark.parametrize("clean", [False, True])
def test_session_expiry_of_clients_that_reconnect(clean: bool) -> None:
    world = World(session_expiry_max_s=2 * YEAR_S)
    client = Client(world, "c")
    for _ in range(RECONNECTIONS):
        client.connect(clean=clean, expiry_s=YEAR_S)
        client.drop()
        world.wait(0.01)
    assert world.broker.sessions
    assert wake_ups(world) <= WAKE_UPS_MAX
    assert not world.broker.sessions


def test_will_delays_of_clients_that_reconnect() -> None:
    world = World()
    watcher, client = Client(world, "w"), Client(world, "c")
    watcher.connect(keep_alive=0)
    watcher.subscribe("gone")
    for _ in range(RECONNECTIONS):
        client.connect(clean=False, expiry_s=YEAR_S, will=mqtt5.Will("gone", payload=b"x", will_delay_interval=YEAR_S))
        client.drop()
        world.wait(0.01)
    assert watcher.payloads() == []
    watcher.drop()
    assert wake_ups(world) <= WAKE_UPS_MAX


def test_the_will_and_the_expiry_of_a_session_still_happen_in_time() -> None:
    world = World(keep_alive_max_s=0)
    watcher, client = Client(world, "w"), Client(world, "c")
    watcher.connect(keep_alive=0)
    watcher.subscribe("gone")
    will = mqtt5.Will("gone", payload=b"x", will_delay_interval=10)
    for _ in range(200):  # some of the timers of these are swept away
        client.connect(clean=False, expiry_s=20, will=will)
        client.drop()
        world.wait(9.5)
    assert watcher.payloads() == []
    world.wait(0.6)
    assert watcher.payloads() == [b"x"]
    assert "c" in world.broker.sessions
    world.wait(10)
    assert "c" not in world.broker.sessions


def test_connections_that_never_say_connect_are_still_ended() -> None:
    world = World()
    silent = Client(world)
    silent.open()
    for _ in range(200):
        connect_311(world, b"c").drop()
    world.wait(9.9)
    assert not silent.is_closed
    world.wait(0.2)
    assert silent.is_closed


def test_links_that_are_made_anew() -> None:
    network = Network({"root": None, "leaf": "root"})
    for _ in range(RECONNECTIONS):
        network.cut("leaf")
        network.join("leaf")
        network.wait(0.001)
    network.cut("leaf")
    for node in network.nodes.values():
        assert wake_ups(node) <= WAKE_UPS_MAX


def test_cancelled_timers_of_a_driver_with_a_clock_of_its_own_do_nothing() -> None:
    timers: list[tuple[int, Callable[..., None], Any]] = []
    world = World(at=lambda due_ns, action, argument: timers.append((due_ns, action, argument)))
    client = Client(world, "c")
    client.connect(clean=False, expiry_s=60)
    client.drop()
    client.connect(clean=False, expiry_s=0xFFFF_FFFF)
    for due_ns, action, argument in timers:
        action(world.broker, argument, due_ns)
    world.settle()
    assert "c" in world.broker.sessions
