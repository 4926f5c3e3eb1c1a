"""The server under test, connections to it, and names nobody else uses."""

from collections.abc import Iterator

import pytest

from tests.mqtt import servers
from tests.mqtt.dial import Dial, unique


class _Shared:
    """The server all tests share; started anew where a test has brought it down."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._server: servers.Server | None = None

    def running(self) -> servers.Server:
        if self._server is None or not self._server.alive():
            self._server = servers.start(self._factory.mktemp("broker"))
        return self._server

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


@pytest.fixture(scope="session")
def _shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Shared]:
    shared = _Shared(tmp_path_factory)
    yield shared
    shared.stop()


@pytest.fixture
def broker(_shared_broker: _Shared) -> Iterator[servers.Server]:
    """The running server; a test after which it is not running any more has an error."""
    server = _shared_broker.running()
    yield server
    assert server.alive(), f"the broker ended with {server.process.returncode}:\n{server.story()}"


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A server for one test alone."""
    server = servers.start(tmp_path_factory.mktemp("own"))
    yield server
    server.stop()


@pytest.fixture
def dial(broker: servers.Server) -> Iterator[Dial]:
    """Opens connections, and closes them after the test."""
    connections = Dial(broker.port)
    yield connections
    connections.close()


@pytest.fixture
def topic() -> str:
    """A topic of this test alone."""
    return unique("t") + "/a"
