"""Processes that a test forks: they inherit all sockets of the network, and do not keep any of them in use."""

import errno
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from time import sleep
from typing import Literal

import pytest

from brokerbed.orchestrator.grounds import relay
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.testing import BrokerNetwork
from tests.mqtt.dial import Dial

FOREVER_S = 600.0
WAIT_S = 20.0
Kind = Literal["os.fork", "multiprocessing"]


@contextmanager
def forked(kind: Kind) -> Iterator[None]:
    """A child process that does nothing but live."""
    if kind == "multiprocessing":
        process = get_context("fork").Process(target=sleep, args=(FOREVER_S,), daemon=True)
        process.start()
        pid = process.pid or 0
    elif not (pid := os.fork()):
        try:
            sleep(FOREVER_S)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        if kind == "multiprocessing":
            process.join()
        else:
            os.waitpid(pid, 0)


def is_refused(address: tuple[str, int]) -> bool:
    with socket.socket() as dialling:
        dialling.settimeout(WAIT_S)
        return dialling.connect_ex(address) == errno.ECONNREFUSED


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with BrokerNetwork({"root": None, "a": "root"}, folder=tmp_path) as made:
        yield made


@pytest.mark.parametrize("kind", ["os.fork", "multiprocessing"])
def test_crash_and_restart_work_while_a_forked_process_lives(network: BrokerNetwork, kind: Kind) -> None:
    address = network.address("a")
    with forked(kind):
        network.crash("a")
        assert is_refused(address)
        network.restart("a")
        assert network.address("a") == address
        dial = Dial(address[1])
        dial.v5("client").disconnect()
        dial.close()
        network.wait_until_calm()


def test_connections_are_reset_while_a_forked_process_has_copies_of_them(network: BrokerNetwork) -> None:
    dial = Dial(network.address("a")[1])
    client = dial.v5("client")
    with forked("os.fork"):
        assert network.disconnect("a") == 1
        client.socket.settimeout(WAIT_S)
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)
    dial.close()


def test_listening_socket_that_a_process_inherited_anyway_accepts_nobody(
    network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a fork that Python does not see."""
    monkeypatch.setattr(relay, "_SOCKETS", set(), raising=False)
    address = network.address("a")
    with forked("os.fork"):
        network.crash("a")
        assert is_refused(address)
        network.restart("a")


def test_closing_a_network_in_a_forked_process_leaves_the_brokers_alone(network: BrokerNetwork) -> None:
    if not (pid := os.fork()):
        try:
            network.close()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert {network.state(name) for name in network.names} == {"serving"}
    network.wait_until_calm()


def test_port_that_somebody_took_is_a_sentence(network: BrokerNetwork) -> None:
    network.crash("a")
    with socket.create_server(network.address("a")), pytest.raises(GroundError) as raised:
        network.restart("a")
    host, port = network.address("a")
    assert str(raised.value) == f"no client can connect to {host}:{port} any more (Address already in use)"
