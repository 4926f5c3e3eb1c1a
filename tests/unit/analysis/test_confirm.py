"""Where `brokerbed advise --confirm` runs pairs of algorithms, and what their measurements say; nothing is run here."""

from dataclasses import replace
from pathlib import Path

import pytest

from brokerbed.analysis.advise import advise
from brokerbed.analysis.confirm import HOLDS, REVERSED, UNCLEAR, Side, experiment, holds, judged, sides
from brokerbed.analysis.predict import predict
from brokerbed.analysis.verdicts import Measured, compare
from brokerbed.scenario import load

S = 1_000_000_000
SMALL = """
scenario: 1
name: small
clock: {warmup: 20s, measure: 1000s}
topology: {tree: levels, brokers: 7, width: 4}
classes: 10
subscriptions: {mean_active: 20, lifetime: {mean: 5s}}
publications: {rate: 4/s}
sweep: {publications.rate: [1/s, 2/s]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_sides_are_where_the_algorithms_are_a_tenth_apart(file: Path) -> None:
    advice = advise(file, over="publications.rate=1/s..4/s")
    experiment_file = file.with_name("sides.yaml")
    experiment_file.write_text(experiment(advice, sides(advice)), encoding="utf-8")
    totals = [
        next(row.predicted for row in predict(point, detail=False).rows if row.metric == "rate.total")
        for point in load(experiment_file).points
    ]
    assert len(totals) == 20
    for cheaper, other in zip(totals[::2], totals[1::2], strict=True):
        assert cheaper is not None
        assert other is not None
        assert 1.1 * cheaper <= other <= 1.2 * cheaper


def test_without_a_range_the_two_cheapest_run_as_they_are(file: Path) -> None:
    advice = advise(file)
    (side,) = sides(advice)
    order = [it.routing for it in advice.candidates]
    assert order[:3] == ["identity", "covering", "merging"]
    assert (side.at, side.routings) == (None, ("identity", "merging"))  # covering costs what identity does
    longer = replace(side, measure_ns=100 * S).longer(advice)
    assert longer is not None
    assert longer.measure_ns == 400 * S
    assert replace(side, measure_ns=1000 * S).longer(advice) is None


@pytest.mark.parametrize(
    ("differences", "verdict", "is_held"),
    [
        ([1.0, 1.2, 0.9, 1.1, 1.0], HOLDS, True),
        ([-1.0, -1.2, -0.9, -1.1, -1.0], REVERSED, False),
        ([1.0, -1.2, 0.9, -1.1, 1.0], UNCLEAR, None),
    ],
)
def test_verdict_is_that_of_the_interval_of_the_differences(
    file: Path, differences: list[float], verdict: str, is_held: bool | None
) -> None:
    """Student's quantile of 4 degrees of freedom is 2.776."""
    advice = advise(file)
    row = next(row for row in advice.candidates[0].prediction.rows if row.metric == "rate.total")
    side = Side(None, None, ("flooding", "identity"), tuple(range(1, 6)), 10**9)
    points = [
        [compare(row, Measured(value, None, None), 0.1)]
        for number, difference in enumerate(differences)
        for value in (10.0 + number, 10.0 + number + difference)
    ]
    (found,) = judged([side], advice, points)
    assert found.verdict == verdict
    assert holds([found]) is is_held
    mean = sum(differences) / 5
    deviation = (sum((each - mean) ** 2 for each in differences) / 4) ** 0.5
    assert found.interval == pytest.approx(
        (mean - 2.7764 * deviation / 5**0.5, mean + 2.7764 * deviation / 5**0.5), rel=1e-4
    )
