"""A sweep with several seeds as data: columns of swept keys and seeds, parts that are runs, and docs/examples in pandas.

One run serves all tests: two rates and routings, two seeds; a link with a random delay, of which theory knows nothing.
"""

import json
import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from brokerbed.analysis.runs import find
from tests.analysis.commands import Commands, Said

TEXT = """
scenario: 1
name: data
seed: 3
clock: {warmup: 5s, measure: 40s}
topology: {tree: star, brokers: 3}
classes: 4
subscriptions: {mean_active: 4, lifetime: {mean: 2s}}
publishers: [{id: sensor, broker: b1, topic: hall/1, rate: 2/s}]
subscribers: [{id: phone, broker: b2, topic: hall/1}, {id: pad, broker: b2, topic: hall/2}]
links: [{between: [b0, b1], delay: {mean: 200ms}}]
sweep:
  - {publishers.sensor.rate: 2/s, routing: identity, seed: 3}
  - {publishers.sensor.rate: 180/min, routing: simple, seed: 3}
"""
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "open_a_run.py"
ALLOWED = "--allow-inconclusive", "--allow-unpredicted"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "data.yaml").write_text(TEXT)
    return folder


@pytest.fixture
def said(place: Path, command: Commands, kept: dict[str, Said]) -> Said:
    """What `run` said."""
    if not kept:
        options = "--seeds", "2", "--out", place / "runs", "--junit", place / "junit.xml", *ALLOWED
        kept["run"] = command("run", place / "data.yaml", "--on", "virtual", *options)
    return kept["run"]


@pytest.fixture(scope="module")
def kept() -> dict[str, Said]:
    return {}


def test_rows_without_a_prediction_pass_if_that_is_allowed(said: Said, place: Path) -> None:
    assert said.code == 0, said.errors
    assert "2 without a prediction" in said.out
    assert "--allow-unpredicted" not in said.errors
    suites = ET.parse(place / "junit.xml").getroot()
    assert [it.get("failures") for it in suites] == ["0"] * 2
    skipped = [it.find("skipped") for it in suites[0] if it.get("name") == "delay.end_to_end sensor phone"]
    assert [it.get("message", "")[:30] for it in skipped if it is not None] == ["there is no prediction; measur"]


def test_subscriber_that_no_publisher_reaches_is_a_warning_of_run_once(said: Said) -> None:
    lines = [line for line in said.errors.splitlines() if "pad" in line]
    assert lines == [
        "warning: subscriber pad at b2 receives nothing, as nobody publishes to hall/2; correct its topic, or publish to it (topics of publishers: hall/1) (at every point)"
    ]


@pytest.mark.usefixtures("said")
def test_compared_tables_have_columns_of_swept_keys_and_seeds(place: Path) -> None:
    folder = place / "runs" / "latest" / "analysis"
    for name in ("compared", "predicted", "measured"):
        table = pd.read_parquet(folder / f"{name}.parquet")
        points = table.groupby("point")[["publishers.sensor.rate", "routing", "seed", "seeds_pooled"]].agg(
            ["min", "max"]
        )
        expected = [(2.0, "identity", 3, 2), (3.0, "simple", 3, 2)]
        assert points.xs("min", axis=1, level=1).to_numpy().tolist() == [list(it) for it in expected]
        assert points.xs("max", axis=1, level=1).to_numpy().tolist() == [list(it) for it in expected]
        written = pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values={"predicted": ""})
        assert list(written.columns) == list(table.columns)
        assert written["publishers.sensor.rate"].tolist() == table["publishers.sensor.rate"].tolist()


@pytest.mark.usefixtures("said")
def test_one_seed_of_one_point_is_analysed_compared_and_traced_like_a_run(command: Commands, place: Path) -> None:
    point = place / "runs" / "latest" / "points" / "1"
    seed = point / "seeds" / "4"
    one = command("analyse", seed, "--json", "--allow-inconclusive")
    assert one.code == 1  # not all is predicted
    assert "no prediction for 1 of 8 headline rows" in one.errors
    assert one.json["at"] == {"publishers.sensor.rate": "180/min", "routing": "simple", "seed": 3}
    assert (one.json["seed"], one.json["model_seconds"]) == (4, 40)
    assert (seed / "report.html").is_file()
    told = command("compare", seed, place / "runs" / "latest", "--json").json
    assert told["runs"] == ["simple 180/min seed 4", "identity 2/s 2 seeds", "simple 180/min 2 seeds"]
    steps = command("trace", seed, "sensor.7", "--json").json["steps"]
    assert [it["broker"] for it in steps if it["event"] == "received"] == ["b1", "b0", "b2", "clients"]
    assert [run.scenario.seed for run in find(point).runs] == [3, 4]
    assert find(point).experiment.points[0].routing == "simple"


@pytest.mark.usefixtures("said")
def test_example_in_the_documents_finds_what_spark_found(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    found = runpy.run_path(str(EXAMPLE))
    assert "before time zero" in capfd.readouterr().out
    by_run = found["by_run"]
    assert [*zip(by_run.routing, by_run.seed, strict=True)] == [
        ("identity", 3), ("identity", 4), ("simple", 3), ("simple", 4),
    ]  # fmt: skip
    point = by_run.index // 2
    pooled = (by_run["mean"] * by_run["count"]).groupby(point).sum() / by_run["count"].groupby(point).sum()
    assert found["delays"].measured.tolist() == pytest.approx(pooled.tolist())
    assert found["delays"][["publisher", "subscriber"]].drop_duplicates().to_numpy().tolist() == [["sensor", "phone"]]
    assert set(found["before"].event) == {"started", "connecting", "connected", "subscribed", "link_subscribe"}
    assert found["seconds"] == 40
    one = json.loads((place / "runs/latest/points/1/seeds/4/analysis/summary.json").read_text())
    (delay,) = [row["measured"] for row in one["metrics"] if row["metric"] == "delay.end_to_end"]
    assert by_run["mean"][3] == pytest.approx(delay)
