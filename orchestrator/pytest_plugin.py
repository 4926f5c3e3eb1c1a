"""For other people's tests: a fixture that brings up trees of real brokers, and what they said if a test fails.

Loaded into every pytest session where brokerbed is installed, so it imports nothing before the fixture is used.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.grounds.testing import BrokerNetwork

NAMES = ("brokerbed", "orchestrator.pytest_plugin")  # the entry point, and -p or pytest_plugins


class BrokerNetworks:
    """Makes networks of brokers for one test."""

    def __init__(self, folder: Path) -> None:
        self.made: list[BrokerNetwork] = []
        self._folder = folder

    def __call__(
        self,
        parents: "Mapping[str, str | None] | None" = None,
        *,
        topology: "Mapping[str, Any] | None" = None,
        routing: str = "identity",
        durability: str = "process",
        on: str = "local",
        **settings: Any,
    ) -> "BrokerNetwork":
        """A network that runs until the test is over; see BrokerNetwork and docs/testing.md."""
        from orchestrator.grounds.testing import BrokerNetwork

        __tracebackhide__ = True
        folder = self._folder / f"network-{len(self.made) + 1}"
        network = BrokerNetwork(
            parents, folder=folder, topology=topology, routing=routing, durability=durability, on=on, **settings
        )
        self.made.append(network)
        network.start()
        return network

    def close(self) -> None:
        for network in reversed(self.made):
            network.close()


_MADE = pytest.StashKey[BrokerNetworks]()


@pytest.fixture
def broker_network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerNetworks]:
    """Brings up trees of real MQTT brokers: network = broker_network({"root": None, "a": "root", "b": "root"})."""
    networks = request.node.stash[_MADE] = BrokerNetworks(tmp_path)
    try:
        yield networks
        for network in networks.made:
            network.check()
    finally:
        networks.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Iterator[None]":
    outcome: Any = yield
    report = outcome.get_result()
    networks = item.stash.get(_MADE, None)
    if report.failed and networks is not None:
        for number, network in enumerate(networks.made, 1):
            report.sections.append((f"broker network {number}", network.told()))


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """It may be asked for by both its names, and is there once."""
    ours = pluginmanager.get_name(sys.modules[__name__])
    for name in NAMES:
        if name != ours:
            pluginmanager.set_blocked(name)
