"""Links that move between broker processes under load: clients notice nothing, whoever is killed.

The load is that of the kill tests: its ledger compares what subscribers get with what publishers sent. See also
`make moves-campaign`.
"""

import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerbed.broker.core.link import split_address
from brokerbed.broker.runtime.addresses import is_any, written
from brokerbed.broker.runtime.control import LINE_BYTES_MAX, Lines
from tests.broker.running import COMMAND, WAIT_S, Running, listening, metric, until
from tests.broker.test_command import certificate
from tests.broker.test_link_secret import SECRET
from tests.local.moves import THREE, MovesRun, load_plan
from tests.mqtt.dial import Dial
from tests.mqtt.servers import free_port


def test_messages_of_every_qos_arrive_once_and_in_order(tmp_path: Path) -> None:
    """No broker is killed during the moves, so that nothing is lost at QoS 0 either."""
    plan = load_plan(moves=6, kills=0, rate_per_s=300, parents=THREE, gap_s=(0.1, 0.3))
    run = MovesRun(plan, tmp_path)
    result = run.execute()
    assert not result.violations, "\n".join(map(str, result.violations))
    assert run.links_moved == len(run.begun) == 6
    assert result.delivered == result.owed > 300
    assert run.lost_at_qos0() == 0


def test_restart_of_the_child_and_of_both_parents_after_moves(tmp_path: Path) -> None:
    """kill -9 of each in turn: --data wins over --parent, which still names the parent from before the moves."""
    plan = load_plan(moves=1, kills=0, rate_per_s=200, parents=THREE, restarts=3)
    run = MovesRun(plan, tmp_path)
    result = run.execute()
    assert not result.violations, "\n".join(map(str, result.violations))
    (move,) = run.begun
    assert result.kills == 3
    assert run.final_tree == {"b": "a", "c": "b", move.child: move.new}


def test_kill_of_each_of_the_three_in_the_middle_of_a_move(tmp_path: Path) -> None:
    plan = load_plan(moves=6, kills=6, rate_per_s=200, parents=THREE)
    run = MovesRun(plan, tmp_path)
    result = run.execute()
    assert not result.violations, "\n".join(map(str, result.violations))
    assert result.kills == 6
    assert run.final_tree is not None


class Brokers:
    """Brokers of a testbed, which obey their standard input."""

    def __init__(self, folder: Path) -> None:
        self.running: dict[str, Running] = {}
        self._folder = folder
        (folder / "secret").write_text(SECRET, encoding="utf-8")

    def start(self, name: str, parent: str | None = None, config: str = "", *options: str) -> None:
        """Starts a broker, or starts it again on its data. `config`: lines of its configuration."""
        file = self._folder / f"{name}.toml"
        file.write_text(f'testbed = true\nlink_secret_file = "secret"\n{config}', encoding="utf-8")
        arguments = [str(COMMAND), "broker", "--name", name, "--port", "0", "--metrics-port", "0", "--routing", "peer"]
        arguments += ["--data", str(self._folder / name), "--config", str(file), *options]
        arguments += ["--parent", f"localhost:{self.running[parent].ports['mqtt']}"] if parent is not None else []
        pipe = subprocess.PIPE
        self.running[name] = listening(subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        if parent is not None:
            self.until_linked(name, parent)

    def until_linked(self, child: str, parent: str) -> None:
        until(lambda: self._is_linked(child, parent) and self._is_linked(parent, child), f"the link {child}-{parent}")

    def _is_linked(self, one: str, other: str) -> bool:
        return metric(self.running[one], "brokerbed_link_connected", peer=other) == 1

    def instruct(self, name: str, line: str) -> str:
        process = self.running[name].process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], WAIT_S)[0], "no answer"
        return process.stdout.readline().strip()

    def kill(self, name: str) -> None:
        process = self.running.pop(name).process
        process.kill()
        process.communicate(timeout=WAIT_S)

    def end(self) -> None:
        for running in self.running.values():
            running.process.terminate()
            running.process.communicate(timeout=WAIT_S)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_instructions_that_cannot_be_followed_are_answered_with_the_reason(brokers: Brokers) -> None:
    brokers.start("a")
    brokers.start("b", "a")
    brokers.start("c", "a", "allow_anonymous = true", "--host", "0.0.0.0")
    for line, reason in {
        "": "an instruction is like `move CHILD PARENT`, not ''",
        "stop": "an instruction is like `move CHILD PARENT`, not 'stop'",
        "move b x": "b is no child of this broker, or x is no other neighbour",
        "move a b": "a is no child of this broker, or b is no other neighbour",
        "move b c": "c has not said where other brokers reach it (address in its configuration)",
    }.items():
        assert brokers.instruct("a", line) == f"refused: {reason}"
    assert brokers.instruct("a", "move c b") == "moving c to b"
    brokers.until_linked("c", "b")


def test_wrong_address_of_the_new_parent_can_be_set_right_at_the_child(brokers: Brokers) -> None:
    """The child cannot reach its new parent. Messages wait for it until an operator tells it the right address."""
    wrong = free_port()
    brokers.start("a", None, f'address = "localhost:{wrong}"')
    brokers.start("b", "a")
    brokers.start("c", "b")
    top, bottom = Dial(brokers.running["a"].ports["mqtt"]), Dial(brokers.running["c"].ports["mqtt"])
    subscriber = top.v5()
    subscriber.subscribe("t")
    until(lambda: metric(brokers.running["c"], "brokerbed_routing_entries", scope="remote") == 1, "interest at c")
    assert brokers.instruct("b", "move c a") == "moving c to a"
    until(lambda: metric(brokers.running["b"], "brokerbed_link_connected", peer="c") == 0, "that c has left")
    publisher = bottom.v5()
    for number in range(5):
        publisher.publish("t", b"%d" % number, 2)
    bottom.close()
    brokers.kill("c")
    brokers.start("c", "a", '[parent]\nname = "a"\n')
    assert [subscriber.take().payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    top.close()


def test_another_broker_at_the_address_of_the_new_parent_is_found_out(brokers: Brokers) -> None:
    brokers.start("x")
    brokers.start("a", None, f'address = "localhost:{brokers.running["x"].ports["mqtt"]}"')
    brokers.start("b", "a")
    brokers.start("c", "b")
    assert brokers.instruct("b", "move c a") == "moving c to a"
    errors = brokers.running["c"].process.stderr
    assert errors is not None
    assert select.select([errors], [], [], WAIT_S)[0], "it is not reported"
    assert "is not a, to which the link of this broker has moved; trying again" in errors.readline()


def test_restart_without_a_parent_makes_a_moved_broker_a_root(brokers: Brokers) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        brokers.start(name, parent)
    brokers.instruct("b", "move c a")
    brokers.until_linked("c", "a")
    brokers.kill("c")
    brokers.start("c")
    assert metric(brokers.running["c"], "brokerbed_link_connected") == 0
    brokers.kill("c")
    brokers.start("c", "b")  # it may link itself to another one again


@pytest.mark.needs("openssl")
def test_moved_link_uses_tls(brokers: Brokers, tmp_path: Path) -> None:
    certificate(tmp_path)
    tls = 'tls_cert = "cert.pem"\ntls_key = "key.pem"\n'
    parent = '[parent]\ntls_ca = "cert.pem"\n'
    for name, above in (("a", None), ("b", "a"), ("c", "b")):
        brokers.start(name, above, f"{tls}{parent if above else ''}")
    assert brokers.instruct("b", "move c a") == "moving c to a"
    brokers.until_linked("c", "a")
    answer = brokers.instruct("a", "move c b")  # the certificate is for localhost, but b listens on 127.0.0.1
    assert answer == "refused: b has not said where other brokers reach it (address in its configuration)"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7:1883", ("10.0.0.7", 1883)), ("broker.example:65535", ("broker.example", 65535)),
        ("[::1]:1883", ("::1", 1883)), ("1883", None), (":1883", None), ("host:0", None), ("host:65536", None),
        ("host:", None), ("host:18x", None), ("h" * 300 + ":1883", None), ("", None),
    ],
)  # fmt: skip
def test_addresses_are_read_and_written(text: str, address: tuple[str, int] | None) -> None:
    assert split_address(text) == address
    if address is not None:
        assert written(*address) == text


@pytest.mark.parametrize(
    ("host", "is_every"),
    [("0.0.0.0", True), ("::", True), ("", True), ("127.0.0.1", False), ("::1", False), ("localhost", False)],
)
def test_addresses_that_stand_for_all_of_a_machine(host: str, is_every: bool) -> None:
    assert is_any(host) == is_every


def test_instructions_may_come_in_pieces_and_have_a_limit() -> None:
    got: list[str] = []
    lines = Lines(got.append)
    for piece in (b"move a", b" b\nmo", b"ve c d\n", b"x" * (LINE_BYTES_MAX + 1), b"\nmove e f\n"):
        lines.add(piece)
    assert got == ["move a b", "move c d", "", "move e f"]
