"""Links that move between real brokers under load, and brokers that are killed meanwhile: `python -m tests.local.moves`.

The load and its judgement are those of tests/durability. Whether the brokers form one tree is read from the metrics of
all of them. Exit code 1 if a message was lost, doubled or out of order, or if there is no tree in the end.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from brokerbed.log.record import Kind as Event
from brokerbed.orchestrator.grounds.losses import events
from tests.durability.brokers import HOST, BrokerProcess, free_ports
from tests.durability.driver import Result, Run
from tests.durability.ledger import Kind, Stream
from tests.durability.plan import TOPICS, Plan

SEVEN = {"a": None, "b": "a", "c": "a", "d": "b", "e": "b", "f": "c", "g": "c"}
THREE = {"a": None, "b": "a", "c": "b"}
REFUSED_S = 0.05  # before a broker that has refused a move is asked again
ANSWER_S_MAX = 20.0  # for a broker to answer, and for all links to be connected
METRICS_S_MAX = 5.0
CONNECTED = "brokerbed_link_connected"
SECRET = "a secret that all brokers of the tree share"


@dataclass(frozen=True)
class MovesPlan(Plan):
    parents: Mapping[str, str | None] = field(default_factory=lambda: SEVEN)
    routing: str = "peer"
    moves: int = 50
    gap_s: tuple[float, float] = (0.1, 0.5)  # from one move to the next
    kill_s_max: float = 0.03  # from the instruction to move to a kill: about as long as most moves take
    is_finished: bool = False  # in the end every broker moves a child once more, if it can
    restarts: int = 0  # after the moves: kills of one broker after the other, when all links are connected again

    def streams(self, places: Sequence[str]) -> list[Stream]:
        """One publisher at each broker, at all QoS."""
        every = [(place, topic, qos) for place in places for topic in TOPICS for qos in (0, 1, 2)]
        return [Stream(f"p{places.index(at)}", topic, qos, at, index) for index, (at, topic, qos) in enumerate(every)]


class Move(NamedTuple):
    child: str
    old: str
    new: str


class TreeBroker(BrokerProcess):
    """A broker of a testbed, which takes instructions over its standard input."""

    STDIN = subprocess.PIPE

    def __init__(self, name: str, ports: tuple[int, int], command: Sequence[str], folder: Path) -> None:
        super().__init__(name, ports[0], command, folder.with_suffix(".log"))
        self.folder = folder
        self._metrics_port = ports[1]

    def instruct(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def answers(self) -> list[str]:
        """All answers to instructions so far."""
        lines = self._log.read_text(errors="replace").splitlines(keepends=True)
        return [line.strip() for line in lines if line.startswith(("moving ", "refused: ")) and line.endswith("\n")]

    def peers(self) -> frozenset[str]:
        """The brokers to which it has connected links."""
        with urlopen(f"http://{HOST}:{self._metrics_port}/", timeout=METRICS_S_MAX) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = (sample for family in families if family.name == CONNECTED for sample in family.samples)
        return frozenset(sample.labels["peer"] for sample in samples if sample.value)

    def links_moved(self) -> int:
        """How often its link has moved, as its log says."""
        return sum(event.kind == Event.LINK_MOVED for event in events(self.folder))


class MovesRun(Run):
    _plan: MovesPlan

    def __init__(self, plan: MovesPlan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.refusals: list[str] = []
        self.begun: list[Move] = []
        self.final_tree: dict[str, str] | None = None
        self.rate_per_s = 0.0  # messages of all publishers during the moves

    def _processes(self, plan: Plan, folder: Path) -> list[BrokerProcess]:
        assert isinstance(plan, MovesPlan)
        ports = free_ports(2 * len(plan.parents))
        self._tree_brokers: dict[str, TreeBroker] = {}
        (folder / "secret").write_text(SECRET, encoding="utf-8")
        config = folder / "broker.toml"
        config.write_text('testbed = true\nlink_secret_file = "secret"\n', encoding="utf-8")
        for name, parent in plan.parents.items():
            own = ports.pop(), ports.pop()
            command = [*plan.command, "--name", name, "--port", str(own[0]), "--metrics-port", str(own[1])]
            command += ["--routing", plan.routing, "--data", str(folder / name), "--config", str(config)]
            if parent is not None:
                command += ["--parent", f"{HOST}:{self._tree_brokers[parent].port}"]
            self._tree_brokers[name] = TreeBroker(name, own, command, folder / name)
        return list(self._tree_brokers.values())

    # -- the tree -------------------------------------------------------------------------------------------------

    def tree(self) -> dict[str, str] | None:
        """The parent of every broker but the root; None if the connected links are no tree now."""
        try:
            peers = {name: broker.peers() for name, broker in self._tree_brokers.items()}
        except (URLError, OSError):
            return None
        if any(name not in peers.get(peer, ()) for name, known in peers.items() for peer in known):
            return None  # one end knows that the link has ended, and the other does not yet
        root = next(iter(peers))
        found: dict[str, str] = {}
        open_ends = [root]
        for name in open_ends:
            below = sorted(peer for peer in peers[name] if peer != found.get(name))
            if any(peer == root or peer in found for peer in below):
                return None  # a circle
            found |= dict.fromkeys(below, name)
            open_ends += below
        return found if len(found) == len(peers) - 1 else None

    def until_tree(self) -> dict[str, str]:
        trees: list[dict[str, str] | None] = [None]

        def is_tree() -> bool:
            trees.append(self.tree())
            return trees[-1] is not None

        self._until(is_tree, ANSWER_S_MAX, "all brokers linked to one tree")
        assert trees[-1] is not None
        return trees[-1]

    # -- moves and kills ------------------------------------------------------------------------------------------

    def _kill_all(self) -> None:
        plan, victims = self._plan, cycle(range(3))
        killing = set(self._draw.sample(range(plan.moves), plan.kills))
        begin_s, published = time.monotonic(), self._published()
        for number in range(plan.moves):
            if number in killing:
                self._move_and_kill(next(victims))
            else:
                self._begin_move()
                self._pass(self._draw.uniform(*plan.gap_s))
        self.rate_per_s = (self._published() - published) / (time.monotonic() - begin_s)
        if plan.is_finished:
            self._finish_moves()
        self.final_tree = self.until_tree()
        for name in list(self._tree_brokers)[: plan.restarts]:
            self._kill_and_await(name)
            self.final_tree = self.until_tree()

    def _published(self) -> int:
        return sum(stream.published for stream in self._ledger.streams)

    def _kill_and_await(self, name: str) -> None:
        broker = self._tree_brokers[name]
        self._kill(broker)
        self._await(broker)

    def _begin_move(self) -> None:
        """Begins a random move; if a broker refuses it because it takes part in another one, another move."""
        while not self._is_begun(self._draw.choice(self._possible_moves())):
            self._pass(REFUSED_S)

    def _is_begun(self, move: Move) -> bool:
        answer = self.instruct(move.old, f"move {move.child} {move.new}")
        is_begun = answer.startswith("moving ")
        if is_begun:
            self.begun.append(move)
        else:
            self.refusals.append(answer)
        return is_begun

    def _finish_moves(self) -> None:
        """Sees whether every broker that could move a child has done with all moves, so that it begins another."""
        for name in self._tree_brokers:
            end_s = time.monotonic() + ANSWER_S_MAX
            while moves := [move for move in self._possible_moves() if move.old == name]:
                if self._is_begun(self._draw.choice(moves)):
                    break
                if time.monotonic() > end_s:
                    self._ledger.note(Kind.UNFINISHED, name, self.refusals[-1])
                    break
                self._pass(REFUSED_S)

    def _move_and_kill(self, which: int) -> None:
        """Kills the child, its old or its new parent at any moment of a random move."""
        move = self._draw.choice(self._possible_moves())
        old = self._tree_brokers[move.old]
        answers = len(old.answers())
        old.instruct(f"move {move.child} {move.new}")
        self.begun.append(move)
        self._pass(self._draw.uniform(0, self._plan.kill_s_max))
        self._kill_and_await(move[which])
        if move[which] != move.old:  # else the answer may have died with it
            self._until(lambda: len(old.answers()) > answers, ANSWER_S_MAX, f"an answer of {move.old}")

    def _possible_moves(self) -> list[Move]:
        tree = self.until_tree()
        return [
            Move(child, old, new)
            for child, old in sorted(tree.items())
            for new in self._tree_brokers
            if new != child and (tree.get(new) == old or tree.get(old) == new)
        ]

    def instruct(self, name: str, line: str) -> str:
        broker = self._tree_brokers[name]
        before = len(broker.answers())
        broker.instruct(line)
        self._until(lambda: len(broker.answers()) > before, ANSWER_S_MAX, f"an answer of {name}")
        return broker.answers()[-1]

    @property
    def links_moved(self) -> int:
        return sum(broker.links_moved() for broker in self._tree_brokers.values())

    def lost_at_qos0(self) -> int:
        """Messages at QoS 0 that a subscriber did not get, of those published since all was subscribed."""
        return sum(
            receipts.times(number) != 1
            for reader in self._ledger.readers
            for index, receipts in reader.receipts.items()
            if (stream := self._ledger.streams[index]).qos == 0
            for number in range(receipts.promised, stream.published)
        )


def load_plan(moves: int, kills: int, rate_per_s: float, seed: int = 1, **more: Any) -> MovesPlan:
    """All brokers publish together so many messages in a second."""
    parents = more.pop("parents", SEVEN)
    return MovesPlan(
        kills=kills, seed=seed, moves=moves, parents=parents, publishers=len(parents), subscribers=len(parents),
        is_mixed=False, rate_per_s=rate_per_s / len(parents), **more,
    )  # fmt: skip


def told(run: MovesRun, result: Result) -> str:
    return (
        f"{len(run.begun)} moves begun, {run.links_moved} made, {len(run.refusals)} refused; "
        f"{run.rate_per_s:.0f} messages/s meanwhile; {result}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.moves", description=__doc__)
    parser.add_argument("--moves", type=int, default=50, help="how many (50)")
    parser.add_argument("--kills", type=int, default=10, help="of these, with a kill -9 of one of the three (10)")
    parser.add_argument("--rate", type=float, default=1000.0, help="messages per second of all publishers (1000)")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the brokers are stopped
    with tempfile.TemporaryDirectory(prefix="moves-") as folder:
        run = MovesRun(load_plan(chosen.moves, chosen.kills, chosen.rate, chosen.seed, is_finished=True), Path(folder))
        result = run.execute()
        print(told(run, result))
    for violation in result.violations:
        print(f"  {violation}")
    print(f"the tree in the end: {run.final_tree}")
    return 1 if result.violations or run.final_tree is None else 0


if __name__ == "__main__":
    sys.exit(main())
