"""A pytest plugin: fixtures that start trees of real brokers, and a report of these brokers if a test fails.

Every pytest session loads it where brokerbed is installed, so it imports nothing before a fixture is used.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from brokerbed.orchestrator.grounds.async_testing import AsyncBrokerNetwork
    from brokerbed.orchestrator.grounds.testing import BrokerNetwork

NAMES = ("brokerbed", "brokerbed.pytest_plugin")  # the entry point, and -p or pytest_plugins


class BrokerNetworks:
    """Creates networks of brokers for one test, or for all tests of a session."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        """`folder` creates a folder for each network."""
        self.networks: list[BrokerNetwork] = []
        self._failed: list[BrokerNetwork] = []  # networks whose check has failed
        self._folder = folder

    def __call__(
        self,
        parents: "Mapping[str, str | None] | None" = None,
        *,
        topology: "Mapping[str, Any] | None" = None,
        routing: "str | None" = None,
        durability: str = "process",
        on: str = "local",
        **settings: Any,
    ) -> "BrokerNetwork":
        """Starts a network that runs until the test, or the session, is over; see BrokerNetwork and docs/testing.md."""
        __tracebackhide__ = True
        network = self.new(parents, topology=topology, routing=routing, durability=durability, on=on, **settings)
        network.start()
        return network

    def new(self, parents: "Mapping[str, str | None] | None" = None, **settings: Any) -> "BrokerNetwork":
        """Creates a network without starting it."""
        from brokerbed.orchestrator.grounds.testing import BrokerNetwork

        __tracebackhide__ = True
        network = BrokerNetwork(parents, folder=self._folder(), **settings)
        self.networks.append(network)
        return network

    def check(self) -> None:
        """Raises GroundError if a broker of a running network died unexpectedly; once per network."""
        for network in self.networks:
            if network.is_running() and network not in self._failed:
                self._failed.append(network)
                network.check()
                self._failed.remove(network)

    def close(self) -> None:
        """Closes all networks, even if closing one of them fails."""
        with ExitStack() as closing_all:
            for network in self.networks:
                closing_all.callback(network.close)


class AsyncBrokerNetworks:
    """Creates networks whose calls are coroutines."""

    def __init__(self, networks: BrokerNetworks) -> None:
        self._networks = networks

    async def __call__(
        self, parents: "Mapping[str, str | None] | None" = None, **settings: Any
    ) -> "AsyncBrokerNetwork":
        """See BrokerNetworks."""
        from brokerbed.orchestrator.grounds.async_testing import AsyncBrokerNetwork

        __tracebackhide__ = True
        network = AsyncBrokerNetwork(self._networks.new(parents, **settings))
        await network.start()
        return network


_OF_TEST = pytest.StashKey[BrokerNetworks]()
_OF_SESSION = pytest.StashKey[BrokerNetworks]()
SESSION_FIXTURE = "session_broker_network"


@pytest.fixture
def broker_network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerNetworks]:
    """Starts trees of real MQTT brokers: network = broker_network({"root": None, "a": "root", "b": "root"})."""
    numbers = count(1)
    yield from _kept(request.node, _OF_TEST, lambda: tmp_path / f"network-{next(numbers)}")


@pytest.fixture
def async_broker_network(broker_network: BrokerNetworks) -> AsyncBrokerNetworks:
    """The same for coroutines: network = await async_broker_network({"root": None, "a": "root"})."""
    return AsyncBrokerNetworks(broker_network)


@pytest.fixture(scope="session")
def session_broker_network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerNetworks]:
    """As broker_network, for fixtures of your own with a wider scope: its networks run until the session is over."""
    yield from _kept(request.session, _OF_SESSION, lambda: tmp_path_factory.mktemp("network"))


def _kept(
    node: pytest.Item | pytest.Session, key: pytest.StashKey[BrokerNetworks], folder: Callable[[], Path]
) -> Iterator[BrokerNetworks]:
    networks = node.stash[key] = BrokerNetworks(folder)
    try:
        yield networks
        networks.check()
    finally:
        networks.close()


def _of_session(item: pytest.Item) -> BrokerNetworks | None:
    """The networks of the session, if this test uses them."""
    is_used = SESSION_FIXTURE in getattr(item, "fixturenames", ())
    return item.session.stash.get(_OF_SESSION, None) if is_used else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> "Generator[None, object, object]":
    """If a broker of the session dies unexpectedly, the test during which this happened fails."""
    result = yield
    if (networks := _of_session(item)) is not None:
        networks.check()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    report = yield
    if report.failed:
        of_test, of_session = item.stash.get(_OF_TEST, None), _of_session(item)
        networks = [*(of_test.networks if of_test else ()), *(of_session.networks if of_session else ())]
        for number, network in enumerate(networks, 1):
            _add_section(report, f"broker network {number}", _summary(network))
    return report


def _add_section(report: pytest.TestReport, title: str, text: str) -> None:
    """Adds text to the failure itself, which JUnit files contain; captured output is there only on request."""
    add = getattr(report.longrepr, "addsection", None)
    if add is not None:
        add(title, text)
    else:
        report.sections.append((title, text))


def _summary(network: "BrokerNetwork") -> str:
    """An error in a hook would end the whole session, so whatever goes wrong here becomes part of the report."""
    try:
        return network.told()
    except Exception as error:  # noqa: BLE001
        return f"the state of this network cannot be told ({type(error).__name__}: {error})"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Ensures that the plugin is loaded once, although it can be requested by two names."""
    ours = pluginmanager.get_name(sys.modules[__name__])
    for name in NAMES:
        if name != ours:
            pluginmanager.set_blocked(name)
