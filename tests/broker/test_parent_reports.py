"""What a broker says about its parent: where it is, and why there is no link to it."""

import select
import socket
from threading import Thread

import pytest

from brokerbed.broker.runtime.uplink import REPEAT_S, LinkReport
from tests.broker.running import WAIT_S, Running, broker, launch
from tests.mqtt.servers import free_port


def next_line(running: Running) -> str:
    """What it says next on stderr, within bounds."""
    assert running.process.stderr is not None
    assert select.select([running.process.stderr], [], [], WAIT_S)[0], "it says nothing"
    return running.process.stderr.readline()


def test_broker_whose_parent_cannot_be_reached_says_so_at_once_and_says_when_it_is_linked() -> None:
    port = free_port()
    with broker("--name", "leaf", "--parent", f"127.0.0.1:{port}") as leaf:
        problem = next_line(leaf)
        assert f"the parent at 127.0.0.1:{port} cannot be reached (Connection refused)" in problem
        with broker("--name", "root", "--port", str(port)):
            assert f"the parent at 127.0.0.1:{port} has accepted the link" in next_line(leaf)


def test_broker_that_is_refused_because_of_its_name_says_so() -> None:
    with broker("--name", "root") as root:
        address = f"127.0.0.1:{root.ports['mqtt']}"
        with (
            broker("--name", "leaf", "--parent", address) as first,
            broker("--name", "leaf", "--parent", address) as second,
        ):
            streams = [it.process.stderr for it in (first, second) if it.process.stderr is not None]
            ready, _, _ = select.select(streams, [], [], WAIT_S)
            assert len(ready) == 1, "whoever comes second is refused"
            problem = ready[0].readline()
            assert f"the parent at {address} refuses the link: it has another child called leaf" in problem
            assert "choose another --name" in problem


def test_parent_that_hangs_up_without_an_answer_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(1)
            connection.close()

        answering = Thread(target=hang_up)
        answering.start()
        with broker("--parent", address) as leaf:
            assert f"the parent at {address} ended the connection before it answered" in next_line(leaf)
        answering.join()


def test_start_line_names_parent_and_routing() -> None:
    for options, told in (
        ((), "brokerbed broker x (no parent, identity routing): mqtt "),
        (
            ("--parent", "127.0.0.1:9", "--routing", "simple"),
            "brokerbed broker x (parent 127.0.0.1:9, simple routing): mqtt ",
        ),
    ):
        process = launch("--name", "x", *options)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(told)
        process.terminate()
        process.communicate(timeout=WAIT_S)


def test_problem_that_lasts_is_reported_again_from_time_to_time(capfd: pytest.CaptureFixture[str]) -> None:
    """Two causes that take turns, seen every second for three periods: each is said at 0, 1 and 2 periods."""
    report = LinkReport()
    for second in range(round(3 * REPEAT_S)):
        report.problem("refused", float(second))
        report.problem("timed out", float(second))
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["brokerbed broker: refused; trying again", "brokerbed broker: timed out; trying again"] * 3


def test_problem_is_reported_at_once_when_it_comes_back_after_a_link(capfd: pytest.CaptureFixture[str]) -> None:
    report = LinkReport()
    report.problem("refused", 0.0)
    report.linked("a:1")
    report.problem("refused", 1.0)
    assert capfd.readouterr().err.count("refused") == 2
