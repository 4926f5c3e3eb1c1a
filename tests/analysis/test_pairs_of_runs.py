"""Two variants with the same random numbers, from the command line to the differences of their rows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from tests.analysis.commands import Commands

SCENARIO = """
scenario: 1
name: variants
clock: {warmup: 10s, measure: 100s}
topology: {tree: star, brokers: 4}
classes: 4
subscriptions: {mean_active: 12, lifetime: {mean: 1s}}
publications: {rate: 8/s}
publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]
subscribers: [{id: s, broker: b2, topic: t, on: {mean: 1s}, off: {mean: 1s}}]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


def events_of_clients(run: Path, event: str) -> Counter[tuple[Any, ...]]:
    """What clients did at brokers, with the moment."""
    events = ds.dataset(run / "log", format="parquet", partitioning="hive").to_table()
    of_clients = pc.and_(pc.equal(events["event"], event), pc.invert(pc.match_substring(events["client"], ">")))
    table = events.filter(of_clients).select(["broker", "time_ns", "client", "topic"])
    return Counter(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def test_pair_has_the_same_workload_and_shows_differences(command: Commands, place: Path) -> None:
    (place / "s.yaml").write_text(SCENARIO)
    told = command(
        "run", place / "s.yaml", "--on", "virtual", "--pair", "routing=identity,flooding", "--json",
        "--out", place / "runs", "--allow-inconclusive",
    ).json  # fmt: skip
    run = Path(told["run_directory"])
    for event in ("subscribed", "unsubscribed", "received", "published"):
        first, second = (events_of_clients(run / "points" / str(point), event) for point in (0, 1))
        assert first == second, event
        assert first, event
    pair = told["pair"]
    assert (pair["key"], pair["values"]) == ("routing", ["identity", "flooding"])
    rows = {(row["metric"], *row["labels"].values()): row for row in pair["differences"]}
    assert rows["table.local_entries",]["ci_low"] == rows["table.local_entries",]["ci_high"] == 0
    notifications = rows["rate.notifications",]
    measured = [
        next(row["measured"] for row in point["metrics"] if row["metric"] == "rate.notifications" and not row["labels"])
        for point in told["points"]
    ]
    assert notifications["measured"] == measured
    assert notifications["difference"] == pytest.approx(measured[1] - measured[0])
    assert notifications["shown"] is True  # flooding sends everything everywhere
    assert rows["rate.control",]["difference"] < 0
    # The delay behind a subscriber that is OFF does not depend on the routing, and the same messages wait in both.
    delay = rows["delay.end_to_end", "p", "s"]
    assert (delay["ci_low"], delay["ci_high"], delay["shown"], delay["times_shorter"]) == (0, 0, False, None)


def test_compare_says_which_differences_are_shown(command: Commands, place: Path) -> None:
    compared = command("compare", place / "runs" / "latest", "--json").json
    rows = {row["metric"]: row["differences"] for row in compared["metrics"] if not row["labels"]}
    assert rows["rate.notifications"][0] is None
    assert rows["rate.notifications"][1]["shown"] is True
    assert rows["rate.notifications"][1]["paired"] is True
    assert rows["table.local_entries"][1]["shown"] is False
    text = command("compare", place / "runs" / "latest").out
    assert "* differs from identity:" in text
    summary = json.loads((place / "runs" / "latest" / "analysis" / "summary.json").read_text())
    assert summary["pair"]["values"] == ["identity", "flooding"]
