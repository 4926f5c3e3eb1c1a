"""Runs that agree, differ and are too short, from the command line to the exit code; JUnit; several seeds; compare."""

import json
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from brokerbed.broker.core.overlay import Overlay
from tests.analysis.commands import PAIR, SHORT, Commands, Said, run_only

HEADLINE = [
    "table.remote_entries", "table.local_entries", "rate.notifications", "rate.notifications.additional",
    "rate.control", "rate.total",
]  # fmt: skip
DROPPED = 0.05  # of the control messages


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scenario is, and where each test leaves its run for the next ones."""
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "pair.yaml").write_text(PAIR)
    (folder / "short.yaml").write_text(SHORT)
    (folder / "long.yaml").write_text(PAIR.replace("measure: 200s", "measure: 2000s"))
    return folder


def headline(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in told["metrics"] if not row["labels"]}


def verdicts(told: dict[str, Any]) -> dict[str, str]:
    return {name: row["verdict"] for name, row in headline(told).items()}


def suite(file: Path) -> ET.Element:
    root = ET.parse(file).getroot()
    assert (root.tag, len(root)) == ("testsuites", 1)
    cases = root[0].findall("testcase")
    assert [it.get("name") for it in cases][: len(HEADLINE)] == HEADLINE
    assert root[0].get("tests") == str(len(cases)) == str(len(HEADLINE) + 7)
    for kind, tag in (("failures", "failure"), ("skipped", "skipped")):
        assert root[0].get(kind) == str(len(root[0].findall(f"testcase/{tag}")))
    return root[0]


def cases_with(tag: str, its: ET.Element) -> dict[str, ET.Element]:
    return {it.get("name", ""): found for it in its.findall("testcase") if (found := it.find(tag)) is not None}


@pytest.fixture(scope="module")
def kept() -> dict[str, Said]:
    """What was said of each run."""
    return {}


def test_a_run_that_agrees(command: Commands, place: Path, kept: dict[str, Said]) -> None:
    said = command(
        "run",
        place / "pair.yaml",
        "--on",
        "virtual",
        "--json",
        "--out",
        place / "agrees",
        "--junit",
        place / "agrees.xml",
    )
    told = said.json
    kept["agrees"] = said
    assert verdicts(told) == dict.fromkeys(HEADLINE, "agrees")
    assert all(it["holds"] for it in told["invariants"])
    assert (said.code, told["agrees"], told["on"], told["model_seconds"]) == (0, True, "virtual", 200)
    assert cases_with("failure", suite(place / "agrees.xml")) == {}


def test_a_broker_that_drops_control_messages_is_caught(
    command: Commands, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class has a subscriber for a tenth of the time (1 s of 10). An entry that is not taken back stays until it is
    the next time, which adds 5% of the other nine tenths; one that is not made takes 5% of the one tenth: 1.4 of 1.
    Such entries stay for 10 s on average, so the run is longer than the others."""
    honest, draws, dropped = Overlay._announce, random.Random(1), 0

    def announce(self: Overlay, *arguments: Any, **more: Any) -> None:
        nonlocal dropped
        if draws.random() < DROPPED:
            dropped += 1
        else:
            honest(self, *arguments, **more)

    monkeypatch.setattr(Overlay, "_announce", announce)
    said = command(
        "run",
        place / "long.yaml",
        "--on",
        "virtual",
        "--json",
        "--out",
        place / "differs",
        "--junit",
        place / "differs.xml",
    )
    told = said.json
    assert dropped > 100
    assert (said.code, told["agrees"]) == (1, False)
    found = verdicts(told)
    assert found["table.remote_entries"] == "differs"
    assert headline(told)["table.remote_entries"]["relative_error"] == pytest.approx(0.4, abs=0.15)
    assert found["table.local_entries"] == "agrees"
    broken = {it["name"]: it for it in told["invariants"] if not it["holds"]}
    assert broken.keys() == {"tables_right_at_end"}
    wrong = broken["tables_right_at_end"]
    assert 5 <= wrong["broken"] <= 20  # 5% of 200 classes are 10
    assert len(wrong["offenders"]) == 5
    assert all(it.startswith("b0: entry for class/0") for it in wrong["offenders"])
    failures = cases_with("failure", suite(place / "differs.xml"))
    assert failures.keys() == {name for name, it in found.items() if it != "agrees"} | broken.keys()
    assert failures["table.remote_entries"].get("type") == "differs"
    assert "predicted 19.03" in failures["table.remote_entries"].get("message", "")
    assert (failures["tables_right_at_end"].text or "").splitlines() == wrong["offenders"]


def test_a_run_that_is_too_short(command: Commands, place: Path, kept: dict[str, Said]) -> None:
    options = "--junit", place / "short.xml"
    said = command("run", place / "short.yaml", "--on", "virtual", "--json", "--out", place / "short", *options)
    kept["short"] = said
    found = verdicts(said.json)
    assert set(found.values()) <= {"agrees", "inconclusive"}
    unclear = {name for name, it in found.items() if it == "inconclusive"}
    assert unclear
    assert (said.code, said.json["agrees"]) == (1, False)
    longer = max(row["longer"] for row in headline(said.json).values() if "longer" in row)
    assert f"measure {longer:.4g} times longer" in said.errors
    assert cases_with("failure", suite(place / "short.xml")).keys() == unclear
    said = command("analyse", place / "short" / "latest", "--allow-inconclusive", *options)
    assert said.code == 0
    assert "inconclusive" in said.out
    assert "times longer" not in said.errors
    its = suite(place / "short.xml")
    assert not cases_with("failure", its)
    assert cases_with("skipped", its).keys() == unclear


def control_per_s(folder: Path) -> float:
    """From the log of a run, in the measured time."""
    field = pc.field("event")
    is_control = (field == "link_subscribe") | (field == "link_unsubscribe")
    time_ns = pc.field("time_ns")
    wanted = is_control & (time_ns >= 20_000_000_000) & (time_ns < 60_000_000_000)
    return float(ds.dataset(folder / "log", partitioning="hive").count_rows(filter=wanted)) / 40


def test_three_seeds_are_pooled(command: Commands, place: Path, kept: dict[str, Said]) -> None:
    folder = run_only(place, SHORT, "--seeds", "3", "--out", "pooled")
    assert sorted(it.name for it in (folder / "seeds").iterdir()) == ["1", "2", "3"]
    told = command("analyse", folder, "--json").json
    assert (told["seeds"], told["model_seconds"], told["compared_seconds"]) == ([1, 2, 3], 120, 120)
    rates = [control_per_s(it) for it in sorted((folder / "seeds").iterdir())]
    one, pooled = headline(kept["short"].json), headline(told)
    assert one["rate.control"]["measured"] == pytest.approx(rates[0])
    assert pooled["rate.control"]["measured"] == pytest.approx(sum(rates) / 3)
    # three times as many batches: about 1.7 times narrower
    told_both = [(one[name], pooled[name]) for name in HEADLINE if one[name]["ci_low"] is not None]
    ratios = [(wide["ci_high"] - wide["ci_low"]) / (it["ci_high"] - it["ci_low"]) for wide, it in told_both]
    assert len(ratios) >= 3
    assert 1.2 < sum(ratios) / len(ratios) < 2.5, ratios
    summary = json.loads((folder / "analysis" / "summary.json").read_text())
    assert summary == told


def test_compare_is_one_table(command: Commands, place: Path, kept: dict[str, Said]) -> None:
    """Of runs that were analysed already."""
    folders = [place / it / "latest" for it in ("agrees", "differs", "pooled")]
    told = command("compare", *folders, "--json").json
    assert told["runs"] == ["seed 1 (1)", "seed 1 (2)", "3 seeds"]
    assert [row["metric"] for row in told["metrics"]] == HEADLINE
    first = [row["values"][0] for row in told["metrics"]]
    assert first == list(headline(kept["agrees"].json).values())
    assert told["metrics"][0]["values"][1]["verdict"] == "differs"
    said = command("compare", *folders)
    assert said.code == 0
    assert all(it in said.out for it in ("seed 1 (1)", "3 seeds", "rate.control"))
