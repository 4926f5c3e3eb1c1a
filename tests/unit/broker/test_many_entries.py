"""A child with more filters than there are packet ids: what it tells its parent, in bounded steps."""

from typing import Any

import pytest

from brokerbed.broker.core import announcements
from brokerbed.broker.core.link import PACKET_IDS
from brokerbed.broker.core.session import Session
from brokerbed.log.record import Kind
from tests.core_client import FOREVER_S, Client
from tests.core_network import Network

MORE_THAN_PACKET_IDS = 70_000
SMALL_WINDOW, MANY = 100, 1_000  # the same proportions where only the window matters, in a fraction of the time


def network_of_two(**config: Any) -> tuple[Network, Client]:
    network = Network({"root": None, "leaf": "root"}, **config)
    client = network.client("leaf", "c")
    client.connect(expiry_s=FOREVER_S, keep_alive=0)
    return network, client


def filters(count: int) -> list[str]:
    return [f"f/{number}" for number in range(count)]


def entries(network: Network) -> set[str]:
    return set(network.entries("root").get("leaf", []))


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "UNACKNOWLEDGED_MAX", SMALL_WINDOW)


def test_the_parent_learns_of_all_filters_of_one_subscribe() -> None:
    network, client = network_of_two(keep_alive_max_s=0)
    client.subscribe(*filters(MORE_THAN_PACKET_IDS))
    assert entries(network) == set(filters(MORE_THAN_PACKET_IDS))
    assert network.sent("subscribe") == {"leaf>root": MORE_THAN_PACKET_IDS}
    assert len(network.events("leaf", Kind.LINK_SUBSCRIBE)) == MORE_THAN_PACKET_IDS


@pytest.mark.usefixtures("small_window")
def test_the_parent_forgets_all_filters_of_one_unsubscribe() -> None:
    network, client = network_of_two(keep_alive_max_s=0)
    for first in range(0, MANY, 50):
        client.subscribe(*filters(MANY)[first : first + 50])
    client.send_unsubscribe(*filters(MANY))
    assert entries(network) == set()
    assert network.sent("unsubscribe") == {"leaf>root": MANY}


def test_what_waits_for_a_silent_parent_takes_no_packet_ids() -> None:
    network, client = network_of_two(keep_alive_max_s=0)
    network.hold("leaf")
    client.subscribe(*filters(MORE_THAN_PACKET_IDS))
    parent = network.nodes["leaf"].broker.overlay.parent
    assert parent is not None
    assert len(parent.parked) < PACKET_IDS / 2
    client.send_unsubscribe(*filters(MORE_THAN_PACKET_IDS)[1:])
    network.release("leaf")
    assert entries(network) == {"f/0"}


@pytest.mark.usefixtures("small_window")
def test_only_the_difference_travels_after_a_cut_with_many_filters() -> None:
    network, client = network_of_two(keep_alive_max_s=0)
    network.cut("leaf")
    client.subscribe(*filters(MANY))
    network.join("leaf")
    assert entries(network) == set(filters(MANY))
    assert network.sent("resync") == {"leaf>root": MANY}
    network.cut("leaf")
    client.send_unsubscribe("f/1", "f/2")
    network.join("leaf")
    assert entries(network) == set(filters(MANY)) - {"f/1", "f/2"}
    assert network.sent("resync") == {"leaf>root": MANY + 2}


@pytest.mark.usefixtures("small_window")
def test_a_cut_in_the_middle_of_telling_loses_nothing() -> None:
    network, client = network_of_two(keep_alive_max_s=0)
    network.hold("leaf")
    client.subscribe(*filters(MANY))
    network.cut("leaf")
    network.join("leaf")
    assert entries(network) == set(filters(MANY))


@pytest.mark.usefixtures("small_window")
def test_many_filters_are_refreshed_and_dropped_when_they_are_not() -> None:
    network, client = network_of_two(keep_alive_max_s=0, refresh_s=30.0)
    client.subscribe(*filters(MANY))
    network.wait(35)
    assert network.sent("refresh") == {"leaf>root": MANY}
    assert entries(network) == set(filters(MANY))
    network.cut("leaf")
    network.wait(95)
    assert entries(network) == set()


def test_every_change_of_one_filter_is_told_and_counted_in_ordinary_operation() -> None:
    network, client = network_of_two(keep_alive_max_s=0)
    network.hold("leaf")
    for _ in range(500):
        client.subscribe("t")
        client.send_unsubscribe("t")
        client.read_all()
    client.subscribe("t")
    network.release("leaf")
    assert network.sent("subscribe") == {"leaf>root": 501}
    assert network.sent("unsubscribe") == {"leaf>root": 500}
    assert entries(network) == {"t"}


def test_a_session_without_free_packet_ids_says_so_instead_of_searching_for_ever() -> None:
    session = Session("c", None)
    session.parked = dict.fromkeys(range(1, PACKET_IDS))
    assert session.take_id() == PACKET_IDS
    session.parked[PACKET_IDS] = None
    with pytest.raises(AssertionError, match="packet ids"):
        session.take_id()


def test_limit_of_subscriptions_is_for_clients_and_not_for_a_link_that_speaks_for_many() -> None:
    network = Network({"root": None, "leaf": "root"}, subscriptions_max=3)
    for number in range(4):
        client = network.client("leaf", f"c{number}")
        client.connect()
        assert client.subscribe(*[f"{number}/{index}" for index in range(4)]) == [2, 2, 2, 0x97]
    assert len(entries(network)) == 12
