"""Runs that end when they know enough, on the virtual ground: what they measure while they go, and how they end."""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from brokerbed.analysis.pacing import Pacer, pacer_of
from brokerbed.analysis.sequential import title_of
from brokerbed.log.record import DUPLICATE, REPLAY
from brokerbed.orchestrator.run import run
from brokerbed.scenario import Scenario, load

NS_PER_S = 10**9
TEXT = """
scenario: 1
name: until
clock: {warmup: 5s, until: 8%, at_most: 500s}
topology: {tree: levels, brokers: 3, width: 2}
classes: 3
subscriptions: {mean_active: 6, lifetime: {mean: 500ms}}
publications: {rate: 3/s}
publishers: [{id: p, broker: b1, topic: t, rate: 4/s}]
subscribers: [{id: s, broker: b2, topic: t, service: {mean: 20ms}}]
copies: 2
"""


@dataclass(frozen=True)
class Ended:
    folder: Path
    pacer: Pacer
    description: dict[str, Any]
    said: list[str]


def ended(folder: Path, text: str) -> Ended:
    (folder / "s.yaml").write_text(text)
    pacers: list[Pacer] = []
    said: list[str] = []

    def pace(scenario: Scenario, raw: Path) -> Pacer:
        pacers.append(pacer_of(scenario, raw))
        return pacers[0]

    run_folder = run(load(folder / "s.yaml"), "virtual", None, 1, folder, lambda _: None, notify=said.append, pace=pace)
    return Ended(run_folder, pacers[0], json.loads((run_folder / "run.json").read_text()), said)


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return ended(tmp_path_factory.mktemp("until"), TEXT)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        ds.dataset(folder / "log", format="parquet", partitioning="hive").to_table().to_pylist()
    )
    return rows


def test_run_ends_before_its_longest_time_when_every_row_is_known(early: Ended) -> None:
    begin_ns, end_ns = early.description["measured_ns"]
    assert begin_ns == 5 * NS_PER_S
    assert end_ns < 505 * NS_PER_S
    assert early.description["model_seconds"] == pytest.approx((end_ns - begin_ns) / NS_PER_S)
    assert early.description["pacing"]["until"]["reached"] is True
    assert "known to 8.000%" in early.said[0]
    published = [row["time_ns"] for row in rows_of(early.folder) if row["event"] == "published"]
    assert begin_ns < max(published) <= end_ns


def test_what_is_measured_while_the_run_goes_is_what_the_log_says(early: Ended) -> None:
    begin_ns, end_ns = early.description["measured_ns"]
    count = (end_ns - begin_ns) // early.pacer.bin_ns
    end_ns = begin_ns + count * early.pacer.bin_ns
    sums = {title_of(row): early.pacer.measurement.sums(row, count) for row in early.pacer.rows}
    x = {title: float(found[0].sum()) for title, found in sums.items() if found is not None}
    n = {title: float(found[1].sum()) for title, found in sums.items() if found is not None}
    notifications = control = 0
    entries: dict[bool, float] = defaultdict(float)
    published: dict[tuple[str, int], int] = {}
    delays: list[float] = []
    rows = rows_of(early.folder)
    for row in rows:
        if row["broker"] == "clients" and row["event"] == "published":
            published[row["origin"], row["sequence"]] = row["time_ns"]
    for row in rows:
        is_in, is_link = begin_ns <= row["time_ns"] < end_ns, ">" in (row["client"] or "")
        if row["event"] == "sent" and is_link and is_in and row["broker"] != "clients":
            notifications += not row["flags"] & (DUPLICATE | REPLAY)
        control += row["event"] in ("link_subscribe", "link_unsubscribe") and is_in
        if row["event"] in ("subscribed", "unsubscribed") and row["broker"] != "clients" and row["time_ns"] < end_ns:
            sign = 1 if row["event"] == "subscribed" else -1
            entries[is_link] += sign * (end_ns - max(begin_ns, row["time_ns"])) / NS_PER_S
        if row["event"] == "processed" and is_in:
            delays.append((row["time_ns"] - published[row["origin"], row["sequence"]]) / NS_PER_S)
    assert (x["rate.notifications"], x["rate.control"]) == (notifications, control)
    assert x["rate.total"] == notifications + control
    assert n["rate.total"] == pytest.approx((end_ns - begin_ns) / NS_PER_S)
    assert x["table.remote_entries"] == pytest.approx(entries[True])
    assert x["table.local_entries"] == pytest.approx(entries[False])
    assert x["delay.end_to_end p -> s"] == pytest.approx(sum(delays))
    assert n["delay.end_to_end p -> s"] == len(delays) > 100
    assert x["delivery.ratio p -> s"] == n["delivery.ratio p -> s"] > 100


def test_longest_time_is_too_short_and_the_run_says_for_what_and_how_long_it_would_take(tmp_path: Path) -> None:
    text = TEXT.replace("until: 8%, at_most: 500s", "until: 1%, at_most: 30s")
    found = ended(tmp_path, text)
    assert found.description["measured_ns"] == [5 * NS_PER_S, 35 * NS_PER_S]
    assert found.description["pacing"]["until"]["reached"] is False
    open_rows = {row["row"]: row for row in found.description["pacing"]["until"]["open"]}
    row = open_rows["rate.notifications"]
    assert row["needs_seconds"] == pytest.approx(30 * (row["half_width"] / 0.01) ** 2)
    assert any(line.startswith("rate.notifications is known to") and "would take about" in line for line in found.said)


def test_a_run_that_ends_early_has_the_events_of_a_longer_one_until_then(early: Ended, tmp_path: Path) -> None:
    _, end_ns = early.description["measured_ns"]
    longer = ended(
        tmp_path, TEXT.replace("until: 8%", "until: 0.001%").replace("at_most: 500s", f"at_most: {end_ns}ns")
    )

    def before_end(folder: Path) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in rows_of(folder) if row["time_ns"] < end_ns]

    assert before_end(early.folder) == before_end(longer.folder)


def test_warmup_that_is_found_is_left_out_and_what_follows_is_as_long_as_asked_for(tmp_path: Path) -> None:
    """The queue of the subscriber is empty at first. Nothing else has a transient."""
    found = ended(tmp_path, TEXT.replace("warmup: 5s, until: 8%, at_most: 500s", "warmup: auto, measure: 60s"))
    transient = found.description["pacing"]["transient"]
    assert transient["ended"] is True
    begin_ns, end_ns = found.description["measured_ns"]
    assert begin_ns == pytest.approx(transient["seconds"] * NS_PER_S)
    assert 0 <= begin_ns <= 60 * NS_PER_S
    assert end_ns - begin_ns == pytest.approx(60 * NS_PER_S, rel=0.1)
    assert any("the transient ended after" in line for line in found.said)
