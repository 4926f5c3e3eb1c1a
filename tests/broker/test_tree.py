"""Trees of broker processes over real sockets: routing, restarts, loops, and Mosquitto as the root."""

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.broker.running import COMMAND, WAIT_S, Running, broker


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for it, within bounds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {WAIT_S} s"
        time.sleep(0.02)


class Listener:
    """A stock client with a persistent session that notes what it gets."""

    def __init__(self, port: int, client_id: str, *filters: str) -> None:
        self.got: list[bytes] = []
        self._subscribed = 0
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=False)
        self.client.on_message = lambda *it: self.got.append(it[2].payload)
        self._filters = filters
        self.client.on_connect = self._subscribe
        self.client.on_subscribe = self._count
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        until(lambda: self._subscribed >= len(filters), "the subscription")

    def _subscribe(self, *_: object) -> None:
        for each in self._filters:
            self.client.subscribe(each, 1)

    def _count(self, *_: object) -> None:
        self._subscribed += 1

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        self.client.publish(topic, payload, qos).wait_for_publish(WAIT_S)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as resources:
        yield resources


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listener(stack: ExitStack, port: int, client_id: str, *filters: str) -> Listener:
    made = Listener(port, client_id, *filters)
    stack.callback(made.stop)
    return made


def metric(running: Running, line: str) -> float:
    """The value of one line of a broker's metrics; 0 where it is not there yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{running.ports['metrics']}/", timeout=WAIT_S) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(it.rsplit(" ", 1)[1]) for it in lines if it.startswith(line + " ")), 0.0)


def chain(stack: ExitStack, routing: str, root_port: int | None = None) -> list[Running]:
    """Three brokers a - b - c (or b - c below a foreign root), joined."""
    out: list[Running] = []
    above = root_port
    for name in ("a", "b", "c") if root_port is None else ("b", "c"):
        parent = ["--parent", f"127.0.0.1:{above}"] if above is not None else []
        running = stack.enter_context(broker("--name", name, "--routing", routing, "--metrics-port", "0", *parent))
        out.append(running)
        above = running.ports["mqtt"]
    return out


@pytest.mark.parametrize("routing", ["identity", "simple", "flooding"])
def test_chain_delivers_up_and_down_and_counts(stack: ExitStack, routing: str) -> None:
    a, _, c = chain(stack, routing)
    top, bottom = listener(stack, a.ports["mqtt"], "top", "up"), listener(stack, c.ports["mqtt"], "bottom", "down")
    if routing != "flooding":
        until(lambda: metric(a, 'brokerbed_routing_entries{broker="a",scope="remote"}') == 1, "the entry at the root")
    else:
        until(lambda: metric(a, 'brokerbed_connections{broker="a"}') == 2, "the link")
    bottom.publish("up", b"1")
    until(lambda: top.got == [b"1"], "delivery at the root")
    top.publish("down", b"2")
    until(lambda: bottom.got == [b"2"], "delivery at the leaf")
    assert metric(a, 'brokerbed_link_messages_total{broker="a",kind="notification",peer="b"}') == 1
    assert metric(c, 'brokerbed_link_messages_total{broker="c",kind="notification",peer="b"}') == 1
    control = 0 if routing == "flooding" else 1
    assert metric(c, 'brokerbed_link_messages_total{broker="c",kind="subscribe",peer="b"}') == control


def test_killed_root_comes_back_and_learns_its_interest(stack: ExitStack) -> None:
    a, _, c = chain(stack, "identity")
    bottom = listener(stack, c.ports["mqtt"], "bottom", "down")
    until(lambda: metric(a, 'brokerbed_routing_entries{broker="a",scope="remote"}') == 1, "the entry at the root")
    os.kill(a.process.pid, signal.SIGKILL)
    a.process.wait(WAIT_S)
    bottom.publish("x", b"waits for the root", qos=1)
    again = subprocess.Popen(
        [COMMAND, "broker", "--name", "a", "--port", str(a.ports["mqtt"])], stdout=subprocess.PIPE, text=True
    )
    stack.callback(again.communicate, timeout=WAIT_S)
    stack.callback(again.terminate)
    assert again.stdout is not None
    assert again.stdout.readline().startswith("brokerbed broker a")
    top = listener(stack, a.ports["mqtt"], "top", "x")
    numbers = iter(range(10_000))

    def arrives() -> bool:
        top.publish("down", b"%d" % next(numbers))
        return bool(bottom.got)

    until(arrives, "delivery after the root came back")


def test_loop_is_refused_with_one_sentence(stack: ExitStack) -> None:
    """Two brokers, each the other's parent: one of them finds out and ends with exit code 2."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first = stack.enter_context(broker("--name", "one", "--parent", f"127.0.0.1:{port}"))
    arguments = [
        COMMAND,
        "broker",
        "--name",
        "two",
        "--port",
        str(port),
        "--parent",
        f"127.0.0.1:{first.ports['mqtt']}",
    ]
    second = subprocess.Popen([str(it) for it in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stack.callback(second.kill)
    until(lambda: first.process.poll() is not None or second.poll() is not None, "the end of one of them")
    ended = first.process if first.process.poll() is not None else second
    assert ended.wait(WAIT_S) == 2
    assert ended.stderr is not None
    assert "is among its own ancestors" in ended.stderr.read()
    if second.poll() is None:
        second.terminate()
    second.communicate(timeout=WAIT_S)


@pytest.mark.parametrize(
    "options", [["--parent", "nowhere"], ["--parent", "host:0"], ["--name", "a/b"], ["--prot"], ["--routing", "x"]]
)
def test_bad_options_are_exit_code_2_and_one_line(options: list[str]) -> None:
    done = subprocess.run([COMMAND, "broker", "--port", "0", *options], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert options[0] in done.stderr


@pytest.mark.skipif(shutil.which("mosquitto") is None and os.environ.get("CI") != "true", reason="needs mosquitto")
@pytest.mark.parametrize("routing", ["identity", "flooding"])
def test_mosquitto_as_the_root(stack: ExitStack, routing: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "m.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    root = subprocess.Popen([program, "-c", tmp_path / "m.conf"], stderr=subprocess.DEVNULL)
    stack.callback(root.wait, WAIT_S)
    stack.callback(root.terminate)
    _, c = chain(stack, routing, root_port=port)
    bottom = listener(stack, c.ports["mqtt"], "bottom", "down")
    until(lambda: answers(port), "Mosquitto listening")
    top = listener(stack, port, "top", "up")
    numbers = iter(range(10_000))

    def arrives() -> bool:
        top.publish("down", b"%d" % next(numbers))
        bottom.publish("up", b"%d" % next(numbers))
        return bool(bottom.got) and bool(top.got)

    until(arrives, "delivery through Mosquitto both ways")
    assert len(bottom.got) == len(set(bottom.got))
