"""How long a run will take and how much it will log, before it begins."""

from pathlib import Path

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.orchestrator import estimate as estimates
from brokerbed.orchestrator.estimate import LONG_S, announcement, estimate, model_s, rows_per_s
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from tests.analysis.real import Real
from tests.conftest import FromText

PAIR = """
scenario: 1
name: pair
clock: {warmup: 600s, measure: 35400s}
topology: {tree: line, brokers: 2}
publishers: [{id: p, broker: b1, topic: t, rate: 1/s}]
subscribers: [{id: s, broker: b0, topic: t}]
"""


def test_rows_of_one_message_over_one_link(from_text: FromText) -> None:
    """5 where it is published, 3 for the link (sent, received, acknowledged), 5 where it is delivered."""
    (scenario,) = from_text(PAIR).points
    assert rows_per_s(scenario, predict(scenario)) == pytest.approx(
        13.0, rel=0.2
    )  # interest in t is told once, not every second


def test_rows_that_are_expected_are_those_of_a_run(real: Real) -> None:
    (done,) = real.finished.runs
    expected = rows_per_s(done.scenario, predict(done.scenario)) * model_s(done.scenario)
    assert expected == pytest.approx(len(real.rows), rel=0.2)


def test_run_of_ten_hours_is_announced_with_its_time_and_size(from_text: FromText, tmp_path: Path) -> None:
    """36 000 s x 13 rows x 16 bytes = 7.5 MB, and 44 bytes a row while it runs."""
    points = from_text(PAIR).points
    line = announcement(estimate(points, is_virtual=False, predict=predict), tmp_path)
    assert line is not None
    assert "this will take about 10.0 h and write about 7.5 MB of message log" in line
    assert "at most 28.1 MB while it runs" in line
    assert (
        announcement(estimate(points, is_virtual=True, predict=predict), tmp_path) is None
    )  # 468 000 rows are done within seconds


def test_real_time_is_model_time_by_speedup_and_one_run_after_the_other(from_text: FromText) -> None:
    (scenario,) = from_text(PAIR.replace("35400s}", "35400s, speedup: 100}")).points
    assert estimate([scenario], is_virtual=False, predict=predict).wall_s == 360.0 < LONG_S
    assert estimate([scenario] * 50, is_virtual=False, predict=predict).wall_s == pytest.approx(50 * 360.0)
    assert estimate([scenario] * 50, is_virtual=False, predict=predict).rows == pytest.approx(
        50 * estimate([scenario], False, predict).rows
    )


def test_run_says_so_before_it_begins(from_text: FromText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "LONG_S", 1e-6)
    experiment = from_text(PAIR.replace("35400s", "1s").replace("600s", "1s"))
    told: list[str] = []
    begun: list[int] = []  # what had been said when the run first told of its progress

    def progress(_: float) -> None:
        begun.append(len(told))

    run(experiment, VIRTUAL, None, 1, tmp_path, progress, notify=told.append, predict=predict)
    assert told[0].startswith("this will take about 1 s and write about ")
    assert not begun or begun[0] == 1
