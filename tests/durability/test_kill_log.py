"""Brokers of the testbed killed under load: what their logs tell is what their stores have, and what clients saw."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from brokerbed.broker.core import persist
from brokerbed.broker.core.rows import SENT
from brokerbed.broker.runtime.log_file import complete
from brokerbed.log.reader import read
from tests.durability.brokers import COMMAND, BrokerProcess
from tests.durability.campaign import chain_plan
from tests.durability.driver import Run
from tests.durability.plan import Plan
from tests.durability.stores import Stored, content
from tests.durability.test_kill import holds

Fact = tuple[str, str, int]  # a receiver, and a message by its origin and number
PARENTS = {"b": "a", "c": "b"}  # in a chain
KIND = 0xFF << persist.SHIFT


def named(client: str) -> str:
    """A link by the parent's name: until it has said that, it is called by its address."""
    child, is_link, peer = client.partition(">")
    return f"{child}>{PARENTS[child]}" if is_link and ":" in peer else client


def open_by_log(folder: Path, name: str) -> set[Fact]:
    """What receivers are owed, or have not acknowledged, by the events of all lives."""
    owed: set[Fact] = set()
    for row in read(folder, name).to_pylist():
        fact = named(row["client"] or ""), row["origin"], row["sequence"]
        if row["event"] in ("queued", "sent"):
            owed.add(fact)
        elif row["event"] in ("acknowledged", "dropped"):
            owed.discard(fact)
    return owed


def open_by_store(folder: Path, name: str) -> set[Fact]:
    """The same by the rows of the store, as SQLite gives them. At QoS 2 one that is released was acknowledged."""
    rows = content(Stored.of(folder), folder / "looked at")

    def receiver(number: int) -> str:
        client_id, _, _, link, *_ = rows[persist.SESSION | number]
        return client_id if link is None else named(f"{name}>{link[0]}")

    owed = set()
    for key, row in rows.items():
        if key & KIND == persist.DELIVERY and not row[5]:
            message = rows[persist.MESSAGE | row[1]] if isinstance(row[1], int) else row[1]
            owed.add((receiver(row[0]), message[4], message[5]))
        elif key & KIND == persist.SENT_RUN:
            session, run, _, _, start, states = row
            origin, first = rows[persist.RUN | run][7:9]
            sent = [index for index, state in enumerate(states, start) if state == SENT]
            owed |= {(receiver(session), origin, first + index) for index in sent}
    return owed


class Watched(Run):
    """After each kill a copy of what the broker has left is looked at; the broker itself goes on with the original."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self._folder = folder
        self.differences: list[set[Fact]] = []
        self.open = 0

    def _killed(self, broker: BrokerProcess) -> None:
        data, copy = self._folder / broker.name, self._folder / "copy"
        shutil.copytree(data, copy)
        stored = Stored.of(copy)
        if (copy / "log.1.records").exists() and stored.main:
            row = content(stored, copy / "row").get(persist.LOG)
            if row is not None:
                complete(copy, row)
            by_store = open_by_store(copy, broker.name)
            self.open += len(by_store)
            self.differences.append(by_store ^ open_by_log(copy, broker.name))
        shutil.rmtree(copy)

    def untold(self, brokers: Sequence[str]) -> list[str]:
        """What clients saw and no log tells."""
        rows = [row for name in brokers for row in read(self._folder / name, name).to_pylist()]
        numbers = {(it["origin"], it["sequence"]): it["number"] for it in rows if it["event"] == "identified"}
        events = {
            (it["event"], it["client"], it["origin"].split(".")[0], it["topic"], numbers[it["origin"], it["sequence"]])
            for it in rows
            if it["event"] in ("received", "sent")
        }
        missing: list[str] = []
        for stream in self._ledger.streams:
            seen = {("received", stream.publisher): stream.acknowledged.__getitem__} | {
                ("sent", reader.name): reader.receipts[stream.index].times
                for reader in self._ledger.readers
                if stream.index in reader.receipts
            }
            missing += [
                f"{event} {client}: {stream.key} {number}"
                for (event, client), is_seen in seen.items()
                for number in range(stream.published)
                if is_seen(number) and (event, client, stream.place, stream.topic, number) not in events
            ]
        return missing


def watched(plan: Plan, folder: Path, is_testbed: bool = True) -> Watched:
    config = folder / "broker.toml"
    config.write_text(f"testbed = {str(is_testbed).lower()}\n")
    plan = replace(plan, command=(*COMMAND, "--config", str(config)), is_mixed=False)  # at QoS 0 nothing is stored
    run = Watched(plan, folder)
    holds(run.execute(), plan)
    return run


@pytest.mark.parametrize(
    ("plan", "brokers"),
    [(Plan(kills=12), "a"), (Plan(kills=3, durability="disk"), "a"), (chain_plan(6, 2, "process"), "abc")],
    ids=["process", "disk", "chain"],
)
def test_log_of_a_killed_broker_agrees_with_its_store(plan: Plan, brokers: str, tmp_path: Path) -> None:
    run = watched(plan, tmp_path)
    assert len(run.differences) > plan.kills // 2
    assert run.open > 0
    assert all(not it for it in run.differences), [len(it) for it in run.differences]
    assert run.untold(brokers) == []


def test_log_in_the_background_is_found_out(tmp_path: Path) -> None:
    """The test can fail. A kill that comes just after the log was written finds no difference, so there are several tries."""

    def differs(attempt: int) -> bool:
        folder = tmp_path / str(attempt)
        folder.mkdir()
        return any(watched(Plan(kills=3, early_share=0.0), folder, is_testbed=False).differences)

    assert any(map(differs, range(10)))
