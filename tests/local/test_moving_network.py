"""A network of real brokers in which a link moves: its relays, cuts and narrow links follow."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.testing import BrokerNetwork
from tests.local.test_network import client, is_silent

TREE = {"root": None, "a": "root", "b": "a"}
MOVED = {"root": None, "a": "root", "b": "root"}


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.needs("docker"))])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[BrokerNetwork]:
    folder = tmp_path_factory.mktemp("network")
    with BrokerNetwork(TREE, folder=folder, routing="peer", on=request.param) as network:
        yield network


@pytest.fixture
def network(running: BrokerNetwork) -> Iterator[BrokerNetwork]:
    """The link of b has moved from a to the root, and moves back."""
    running.move("b", "root")
    assert running.parents() == MOVED
    yield running
    running.heal()
    running.move("b", "a")
    assert running.parents() == TREE


def test_cut_holds_the_link_that_has_moved_and_no_other(network: BrokerNetwork) -> None:
    with client(network, "a") as above, client(network, "b") as below:
        above.subscribe("up")
        below.subscribe("down")
        network.wait_until_calm()
        network.cut("b", "root")
        above.publish("down", b"1", 1)
        below.publish("up", b"2", 1)
        assert is_silent(below)
        assert is_silent(above)
        network.repair("root", "b")
        assert below.take().payload == b"1"
        assert above.take().payload == b"2"
    with pytest.raises(ValueError, match="there is no link between a and b"):
        network.cut("a", "b")


def test_moved_broker_and_its_new_parent_come_back_after_a_crash(network: BrokerNetwork) -> None:
    for name in ("b", "root", "a"):
        network.crash(name)
        network.restart(name)
        assert network.parents() == MOVED
    with client(network, "a") as above, client(network, "b") as below:
        above.subscribe("up")
        network.wait_until_calm()
        below.publish("up", b"1", 2)
        assert above.take().payload == b"1"
    network.assert_nothing_lost()


def test_broker_that_cannot_move_says_why(network: BrokerNetwork) -> None:
    with pytest.raises(ValueError, match="root is the root: it has no link that could move"):
        network.move("root", "a")
    with pytest.raises(GroundError, match="b does not move to root: b is no child of this broker, or root is no other"):
        network.move("b", "root")


def test_links_do_not_move_under_other_routing(tmp_path: Path) -> None:
    reason = "b does not move to root: links do not move under identity routing"
    with BrokerNetwork(TREE, folder=tmp_path) as network, pytest.raises(GroundError, match=reason):
        network.move("b", "root")


def test_delay_belongs_to_the_pair_that_has_it(tmp_path: Path) -> None:
    """Only the link of b to a is slow: neither that of b to another parent, nor that of another to a."""
    slow = {"between": ["a", "b"], "delay": {"mean": "300ms", "law": "deterministic"}}
    with BrokerNetwork(TREE, folder=tmp_path, routing="peer", links=[slow]) as network:
        for parent, is_slow in (("a", True), ("root", False), ("a", True)):
            if network.parents()["b"] != parent:
                network.move("b", parent)
            with client(network, parent) as above, client(network, "b") as below:
                above.subscribe("t")
                network.wait_until_calm()
                below.publish("t", b"1", 0)
                assert is_silent(above) == is_slow
                assert above.take().payload == b"1"
