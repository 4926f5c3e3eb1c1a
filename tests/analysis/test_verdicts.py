"""Verdicts, straight from the design: inconclusive first, then agrees or differs; zero and no prediction apart."""

import pytest

from analysis.predict import Row
from analysis.verdicts import Measured, compare, labels_of, verdict_of

NAN = float("nan")
CASES = [
    # predicted, measured, low, high, tolerance, verdict
    (100.0, 100.0, 99.0, 101.0, 0.02, "agrees"),
    (100.0, 103.0, 101.0, 105.0, 0.02, "agrees"),  # 101 - 2 is below 100
    (100.0, 104.0, 102.0, 106.0, 0.02, "agrees"),  # 102 - 2 is just 100
    (100.0, 104.1, 102.1, 106.1, 0.02, "differs"),
    (100.0, 95.9, 93.9, 97.9, 0.02, "differs"),
    (100.0, 96.0, 94.0, 98.0, 0.02, "agrees"),
    (100.0, 104.1, 102.1, 106.1, 0.05, "agrees"),
    (100.0, 101.0, 100.5, 101.5, 0.0, "differs"),
    (100.0, 100.0, 90.0, 110.0, 0.02, "agrees"),  # half the width is 10% of the prediction, and no more
    (100.0, 100.0, 89.9, 110.1, 0.02, "inconclusive"),
    (100.0, 300.0, 250.0, 350.0, 0.02, "inconclusive"),  # it comes first, however far off
    (100.0, 300.0, 295.0, 305.0, 0.02, "differs"),
    (100.0, None, None, None, 0.02, "inconclusive"),  # nothing was measured
    (100.0, 100.0, None, None, 0.02, "inconclusive"),  # no interval
    (0.0, 0.0, 0.0, 0.0, 0.02, "agrees"),
    (0.0, 1e-9, -1.0, 1.0, 0.02, "differs"),  # agrees iff measured 0
    (0.0, 0.0, None, None, 0.02, "agrees"),
    (None, 5.0, 4.0, 6.0, 0.02, None),
    (None, None, None, None, 0.02, None),
    (NAN, 5.0, 4.0, 6.0, 0.02, None),
]


@pytest.mark.parametrize(("predicted", "measured", "low", "high", "tolerance", "verdict"), CASES)
def test_verdict_of(
    predicted: float | None, measured: float | None, low: float | None, high: float | None, tolerance: float,
    verdict: str | None,
) -> None:  # fmt: skip
    assert verdict_of(predicted, measured, low, high, tolerance) == verdict


def test_compared_row_has_its_relative_error() -> None:
    row = compare(Row("rate.control", {}, 50.0), Measured(49.0, 48.0, 50.0), 0.02).as_json()
    assert row == {
        "metric": "rate.control", "labels": {}, "unit": "1/s", "predicted": 50.0, "measured": 49.0, "ci_low": 48.0,
        "ci_high": 50.0, "relative_error": pytest.approx(-0.02), "verdict": "agrees",
    }  # fmt: skip
    for predicted, measured in ((0.0, Measured(1.0, 0.5, 1.5)), (None, Measured(1.0, 0.5, 1.5)), (50.0, None)):
        assert compare(Row("rate.control", {}, predicted), measured, 0.02).relative_error is None


@pytest.mark.parametrize(
    ("metric", "first", "second", "labels"),
    [
        ("table.remote_entries", "", "", {}),
        ("table.local_entries", "b3", "", {"broker": "b3"}),
        ("rate.notifications", "b3>b1", "", {"link": "b3>b1"}),
        ("rate.notifications.additional", "", "", {}),
        ("delay.end_to_end", "p", "s", {"publisher": "p", "subscriber": "s"}),
        ("delay.stage", "link", "b3>b1", {"stage": "link", "at": "b3>b1"}),
        ("delivery.ratio", "p", "s", {"publisher": "p", "subscriber": "s"}),
    ],
)
def test_labels_of(metric: str, first: str, second: str, labels: dict[str, str]) -> None:
    assert labels_of(metric, first, second) == labels
