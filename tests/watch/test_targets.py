"""Where a run says that it can be scraped, and what it serves there beside its brokers."""

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from brokerbed.analysis.predict import predict
from brokerbed.orchestrator import targets
from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.base import Played
from brokerbed.orchestrator.observe import RunCollector, predicted
from brokerbed.scenario import Scenario
from tests.broker.running import WAIT_S, until
from tests.conftest import FromText
from tests.local.commands import END_S_MAX, Command, assert_nothing_left, brokerbed, clean, run

IMAGE_S_MAX = 300.0  # if it has to be made
LONG = """\
scenario: 1
name: small
topology: {tree: star, brokers: 3}
publishers: [{id: p, broker: b1, topic: t, rate: 10/s}]
subscribers: [{id: s, broker: b2, topic: t}]
clock: {warmup: 10s, measure: 1h, speedup: 5}
"""
ONE_LINK = """\
scenario: 1
name: two
clock: {measure: 100s, speedup: 4}
topology: {tree: line, brokers: 2}
publishers: [{id: p, broker: b1, topic: t, rate: 3/s}]
subscribers:
  - {id: s, broker: b0, topic: t, on: {mean: 10s}, off: {mean: 10s}}
  - {id: r, broker: b1, topic: u}
copies: 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That one Prometheus looks at."""
    place = tmp_path / "targets"
    monkeypatch.setenv(targets.FOLDER_VARIABLE, str(place))
    return place


def listed(command: Command) -> list[dict[str, Any]]:
    file = command.place / "runs" / "latest" / targets.FILE
    until(file.exists, "the list of targets")
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def copy_in(folder: Path) -> Path:
    """It is written after the list in the run directory."""
    until(lambda: any(folder.glob("*.json")), "the copy of the list")
    (copy,) = folder.iterdir()
    return copy


def scraped(group: dict[str, Any]) -> str:
    with urllib.request.urlopen(f"http://{group['targets'][0]}/metrics", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def values(families: list[Metric]) -> dict[tuple[str, ...], float]:
    return {(it.name, *it.labels.values()): it.value for family in families for it in family.samples}


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_is_listed_while_it_goes_on(tmp_path: Path, folder: Path, number: signal.Signals) -> None:
    with run(tmp_path / "run", LONG) as command:
        groups = listed(command)
        copy = copy_in(folder)
        assert json.loads(copy.read_text(encoding="utf-8")) == groups
        assert [it["labels"].get("broker") for it in groups] == ["b0", "b1", "b2", None]
        name = (command.place / "runs" / "latest").resolve().name
        own = {"run": name, "scenario": "small", "ground": "local"}
        assert all(it["labels"].items() >= own.items() for it in groups)
        assert all(it["targets"][0].startswith("127.0.0.1:") for it in groups)
        assert 'brokerbed_connections{broker="b1"}' in scraped(groups[1])
        assert "brokerbed_run_speedup 5.0" in scraped(groups[3])
        command.signal(number)
        assert command.end().code == 128 + number
        assert_nothing_left(command.place)
        assert list(folder.iterdir()) == list(command.place.glob(f"runs/*/{targets.FILE}")) == []


@pytest.mark.needs("docker")
def test_brokers_in_containers_can_be_scraped_from_this_machine(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(LONG, encoding="utf-8")
    process = brokerbed(tmp_path, "run", file, "--on", "docker", "--no-analyse", "--out", tmp_path / "runs")
    try:
        until(lambda: any(folder.glob("*.json")) or process.poll() is not None, "the list of targets", IMAGE_S_MAX)
        assert process.poll() is None, process.communicate()
        copy = copy_in(folder)
        groups = json.loads(copy.read_text(encoding="utf-8"))
        assert {it["labels"]["ground"] for it in groups} == {"docker"}
        for name, group in zip(("b0", "b1", "b2"), groups, strict=False):
            assert f'brokerbed_connections{{broker="{name}"}}' in scraped(group)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=END_S_MAX)
    assert list(folder.iterdir()) == []


def test_list_of_a_killed_orchestrator_is_removed_and_no_other(tmp_path: Path, folder: Path) -> None:
    with run(tmp_path / "run", LONG) as command:
        listed(command)
        copy = copy_in(folder)
        other = folder / f"{journal.process_name()}.json"  # of somebody who lives
        other.write_text("[]", encoding="utf-8")
        foreign = folder / "mine.json"
        foreign.write_text("[]", encoding="utf-8")
        command.signal(signal.SIGKILL)
        command.end()
        assert f"ended targets {copy}\n" in clean(command.place)
        assert set(folder.iterdir()) == {other, foreign}


def test_folder_that_cannot_be_written_is_told(tmp_path: Path, folder: Path) -> None:
    folder.write_text("a file, not a folder", encoding="utf-8")
    with run(tmp_path / "run", LONG) as command:
        ended = command.end()
        assert_nothing_left(command.place)
    assert ended.code == 3
    assert str(folder) in ended.error_lines[0]


# -- predictions ------------------------------------------------------------------------------------------------------


def of_scenario(scenario: Scenario) -> dict[tuple[str, ...], float]:
    return values([*predicted(predict(scenario), scenario.clock.speedup)])


def test_predictions_by_hand(from_text: FromText) -> None:
    """Per copy 3 notifications per model second climb the only link, of two copies at four times the pace 24 per second.

    A client that is there half of the time, for 10 s at a time on average, takes messages at once while it is there. One
    that comes while it is away waits for the rest of the OFF period, 10 s on average; so half of all wait 10 s,
    and by Little's law 3/s x 5 s = 15 messages wait per copy.
    """
    found = of_scenario(from_text(ONE_LINK).points[0])
    rate = "brokerbed_predicted_messages_per_second"
    assert found[rate, "rate.notifications", "b1>b0"] == pytest.approx(24)
    assert found[rate, "rate.notifications", "b0>b1"] == 0
    assert found[rate, "rate.notifications", ""] == pytest.approx(24)
    assert found["brokerbed_predicted_entries", "table.local_entries", "b0"] == pytest.approx(2)
    assert found["brokerbed_predicted_queue_messages", "b0"] == pytest.approx(30)
    assert ("brokerbed_predicted_queue_messages", "b1") not in found  # nobody publishes what r wants


def test_unknown_rates_are_left_out(from_text: FromText) -> None:
    """A publisher with more to do than it can."""
    text = ONE_LINK.replace("rate: 3/s", "rate: 3/s, service: {mean: 1s}")
    found = of_scenario(from_text(text).points[0])
    rate = "brokerbed_predicted_messages_per_second"
    assert not [key for key in found if key[:2] == (rate, "rate.notifications")]
    assert (rate, "rate.control", "") in found


def test_clock_of_a_run(from_text: FromText, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = from_text(LONG).points[0]  # 10 s of warm-up and one hour, five times as fast
    played = Played(start_ns=1_000_000_000_000)
    collector = RunCollector(scenario, predict(scenario), played)

    def at(wall_s: float) -> tuple[float, float]:
        """Model time and measured time, so many seconds after the beginning."""
        monkeypatch.setattr("time.time_ns", lambda: int(1_000_000_000_000 + wall_s * 1e9))
        found = values([*collector.collect()])
        return found["brokerbed_run_model_seconds",], found["brokerbed_run_measured_seconds",]

    assert at(-0.2) == (0, 0)
    assert at(1) == (5, 0)
    assert at(12) == (60, 10)
    assert at(730) == (3650, 0)
    played.start_ns = None
    assert at(12) == (0, 0)


def test_targets_are_written_at_once(tmp_path: Path, folder: Path) -> None:
    """A reader never sees half a list."""
    (tmp_path / "run").mkdir()
    its = targets.Targets(tmp_path / "run", {"run": "r"}, ("127.0.0.1", 1))
    its.write({"b0": ("127.0.0.1", 2)})
    assert [it.name for it in folder.iterdir()] == [f"{journal.process_name()}.json"]
    assert [it.name for it in (tmp_path / "run").iterdir()] == [targets.FILE]
    its.remove()
    its.remove()
    assert list(folder.iterdir()) == []
