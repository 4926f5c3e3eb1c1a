"""Links that move between brokers in containers while clients publish and subscribe at all QoS."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from brokerbed.orchestrator.grounds.testing import BrokerNetwork
from tests.durability.brokers import BrokerProcess
from tests.durability.driver import Run
from tests.durability.plan import Plan
from tests.local.moves import MovesPlan, load_plan

PARENTS = {"a": None, "b": "a", "c": "a", "d": "b"}
MOVES, KILLED_AFTER = 10, (3, 7)
CALL_S_MAX = 60.0

pytestmark = pytest.mark.needs("docker")


class ContainedBroker(BrokerProcess):
    """A broker of a network that runs, as the load sees it."""

    def __init__(self, name: str, network: BrokerNetwork) -> None:
        super().__init__(name, network.address(name)[1], (), Path())

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def is_running(self) -> bool:
        return True  # the network itself reports a broker that dies


class ContainedRun(Run):
    """Moves links of the network, and kills brokers, under the load of the kill tests."""

    def __init__(self, plan: MovesPlan, folder: Path, network: BrokerNetwork, calls: ThreadPoolExecutor) -> None:
        self._network = network
        self._calls = calls
        super().__init__(plan, folder)

    def _processes(self, plan: Plan, folder: Path) -> list[BrokerProcess]:
        del plan, folder
        return [ContainedBroker(name, self._network) for name in PARENTS]

    def _kill_all(self) -> None:
        for number in range(MOVES):
            child, parent = self._draw.choice(list(possible_moves(self._network.parents())))
            self._call(self._network.move, child, parent)
            assert self._network.parents()[child] == parent
            if number in KILLED_AFTER:
                self._crash(child)

    def _crash(self, name: str) -> None:
        """Kills a broker and starts it again; its clients lose their connections at that moment."""
        broker = next(broker for broker in self._brokers if broker.name == name)
        clients = [client for client in self._clients if client.broker is broker]
        for client in clients:
            client.rest()
        self._call(self._network.crash, name)
        self._call(self._network.restart, name)
        for client in clients:
            client.wake()
        self._await(broker)
        self._kills += 1

    def _call(self, verb: Callable[..., Any], *arguments: str) -> None:
        """Calls the network while the clients go on."""
        call = self._calls.submit(verb, *arguments)
        self._until(call.done, CALL_S_MAX, f"{verb.__name__} {' '.join(arguments)}")
        call.result()


def possible_moves(parents: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    for child, old in parents.items():
        for new in parents:
            if old is not None and new != child and (parents[new] == old or parents[old] == new):
                yield child, new


def test_ten_moves_and_two_kills_in_containers_lose_nothing(tmp_path: Path) -> None:
    plan = load_plan(moves=MOVES, kills=len(KILLED_AFTER), rate_per_s=200, parents=PARENTS)
    with (
        BrokerNetwork(PARENTS, folder=tmp_path / "network", routing="peer", on="docker") as network,
        ThreadPoolExecutor(1) as calls,
    ):
        result = ContainedRun(plan, tmp_path, network, calls).execute()
        assert not result.violations, "\n".join(map(str, result.violations))
        assert result.kills == len(KILLED_AFTER)
        assert result.delivered == result.owed > 300
        network.assert_nothing_lost()
