"""Trees of broker processes over real sockets: routing, restarts, loops, and Mosquitto as the root."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.broker.running import COMMAND, WAIT_S, broker, launch, until
from tests.broker.tree import CHAIN, Tree
from tests.mqtt.servers import free_port
from tests.needs import path_of
from tests.overlay_examples import Crossing

LINKS = ("a>b", "b>c", "c>b", "b>a")


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
        self.client.on_message = self.client.on_connect = self.client.on_subscribe = None  # they hold us, we hold it


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


@pytest.mark.parametrize("routing", ["identity", "simple", "flooding", "covering", "merging"])
def test_chain_delivers_up_and_down_and_counts(stack: ExitStack, routing: str) -> None:
    brokers = stack.enter_context(Tree(CHAIN, routing))
    brokers.until_linked()
    top = listener(stack, brokers.ports["a"], "top", "up")
    bottom = listener(stack, brokers.ports["c"], "bottom", "down")
    control = 0 if routing == "flooding" else 1
    brokers.until_entries(a=control, b=control)
    bottom.publish("up", b"1")
    until(lambda: top.got == [b"1"], "delivery at the root")
    top.publish("down", b"2")
    until(lambda: bottom.got == [b"2"], "delivery at the leaf")
    sent = brokers.counts().sent
    assert {link: sent[Crossing("notification", link)] for link in LINKS} == dict.fromkeys(LINKS, 1)
    assert sent[Crossing("subscribe", "c>b")] == control


@pytest.mark.parametrize(("routing", "climbing"), [("peer", 0), ("advertisement", 1), ("peer-advertisement", 1)])
def test_chain_sends_only_where_somebody_wants_it(stack: ExitStack, routing: str, climbing: int) -> None:
    """`climbing`: whether what nobody has advertised goes on to the root, where nobody wants it."""
    brokers = stack.enter_context(Tree(CHAIN, routing))
    brokers.until_linked()
    middle = listener(stack, brokers.ports["b"], "middle", "t")
    bottom = listener(stack, brokers.ports["c"], "bottom", "$advertise/t")
    until(lambda: brokers.counts().entries["c"] == 1, "interest at the leaf")
    bottom.publish("u", b"nobody wants it")
    bottom.publish("t", b"1")
    until(lambda: middle.got == [b"1"], "delivery in the middle")
    until(lambda: brokers.counts().sent[Crossing("unadvertised", "b>a")] >= climbing, "the other message at the root")
    sent = brokers.counts().sent
    assert sent[Crossing("notification", "b>a")] == 0
    assert sent[Crossing("notification", "c>b")] + sent[Crossing("unadvertised", "c>b")] == 1 + climbing


def test_killed_root_comes_back_and_learns_its_interest(stack: ExitStack) -> None:
    brokers = stack.enter_context(Tree(CHAIN))
    bottom = listener(stack, brokers.ports["c"], "bottom", "down")
    brokers.until_entries(a=1, b=1)
    brokers.kill("a")
    bottom.publish("x", b"waits for the root", qos=1)
    brokers.start("a")
    top = listener(stack, brokers.ports["a"], "top", "x")
    numbers = iter(range(10_000))

    def arrives() -> bool:
        top.publish("down", b"%d" % next(numbers))
        return bool(bottom.got)

    until(arrives, "delivery after the root came back")


def test_loop_is_refused_with_one_sentence(stack: ExitStack) -> None:
    """Two brokers, each the other's parent: one of them finds out and ends with exit code 2."""
    port = free_port()
    first = stack.enter_context(broker("--name", "one", "--parent", f"127.0.0.1:{port}"))
    second = launch("--name", "two", "--port", str(port), "--parent", f"127.0.0.1:{first.ports['mqtt']}")
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


def mosquitto(stack: ExitStack, folder: Path) -> int:
    """A stock Mosquitto that listens; its port."""
    port = free_port()
    (folder / "m.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    root = subprocess.Popen([path_of("mosquitto"), "-c", folder / "m.conf"], stderr=subprocess.DEVNULL)
    stack.callback(root.wait, WAIT_S)
    stack.callback(root.terminate)
    until(lambda: answers(port), "Mosquitto listening")
    return port


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("routing", ["identity", "flooding", "covering", "merging"])
def test_mosquitto_as_the_root(stack: ExitStack, routing: str, tmp_path: Path) -> None:
    port = mosquitto(stack, tmp_path)
    brokers = stack.enter_context(Tree({"b": None, "c": "b"}, routing, root_parent=port))
    bottom = listener(stack, brokers.ports["c"], "bottom", "down")
    top = listener(stack, port, "top", "up")
    numbers = iter(range(10_000))

    def arrives() -> bool:
        top.publish("down", b"%d" % next(numbers))
        bottom.publish("up", b"%d" % next(numbers))
        return bool(bottom.got) and bool(top.got)

    until(arrives, "delivery through Mosquitto both ways")
    assert len(bottom.got) == len(set(bottom.got))


@pytest.mark.needs("mosquitto")
def test_retained_messages_of_a_foreign_root_reach_a_new_subscriber_once(stack: ExitStack, tmp_path: Path) -> None:
    """And its child counts what it sends, under its address."""
    port = mosquitto(stack, tmp_path)
    brokers = stack.enter_context(Tree({"b": None, "c": "b"}, "identity", root_parent=port))
    top = listener(stack, port, "top")
    top.client.publish("kept", b"old", 1, retain=True).wait_for_publish(WAIT_S)
    first = listener(stack, brokers.ports["c"], "first", "kept")
    until(lambda: first.got == [b"old"], "the retained message at the leaf")
    second = listener(stack, brokers.ports["b"], "second", "kept")
    until(lambda: second.got == [b"old"], "the retained message in the middle")
    top.client.publish("kept", b"new", 1, retain=True).wait_for_publish(WAIT_S)
    until(lambda: first.got == second.got == [b"old", b"new"], "the live message")
    sent = {it.kind: count for it, count in brokers.counts().sent.items() if it.link == f"127.0.0.1:{port}>b"}
    assert sent == {"retained": 1, "notification": 1}
