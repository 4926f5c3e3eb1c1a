"""Verdicts, straight from the design: an interval within the band agrees, one outside differs; zero and no prediction."""

import pytest

from brokerbed.analysis.verdicts import Measured, compare, verdict_of
from brokerbed.metrics import CONTROL_MESSAGES, Row

NAN = float("nan")
CASES = [
    # predicted, measured, low, high, tolerance, verdict
    (100.0, 100.0, 99.0, 101.0, 0.02, "agrees"),
    (100.0, 100.0, 98.0, 102.0, 0.02, "agrees"),  # just within the band
    (100.0, 100.0, 97.9, 102.1, 0.02, "inconclusive"),  # it may be off by more
    (100.0, 101.0, 99.5, 102.5, 0.02, "inconclusive"),
    (100.0, 104.0, 102.0, 106.0, 0.02, "inconclusive"),  # it touches the band
    (100.0, 104.1, 102.1, 106.1, 0.02, "differs"),
    (100.0, 95.9, 93.9, 97.9, 0.02, "differs"),
    (100.0, 104.1, 102.1, 106.1, 0.07, "agrees"),
    (100.0, 101.0, 100.5, 101.5, 0.0, "differs"),
    (100.0, 100.0, 99.5, 100.5, 0.0, "inconclusive"),
    (100.0, 100.0, 90.0, 110.0, 0.02, "inconclusive"),  # a wide interval gives no verdict away
    (100.0, 300.0, 150.0, 450.0, 0.02, "differs"),  # though wide, it is nowhere near
    (-100.0, -100.0, -101.0, -99.0, 0.02, "agrees"),
    (100.0, None, None, None, 0.02, "inconclusive"),  # nothing was measured
    (100.0, 100.0, None, None, 0.02, "inconclusive"),  # no interval
    (0.0, 0.0, 0.0, 0.0, 0.02, "agrees"),
    (0.0, 0.0, 0.0, 0.04, 0.02, "agrees"),
    (0.0, 1e-9, -1.0, 1.0, 0.02, "differs"),  # agrees iff measured 0
    (0.0, 0.0, None, None, 0.02, "agrees"),
    (None, 5.0, 4.0, 6.0, 0.02, None),
    (None, None, None, None, 0.02, None),
    (NAN, 5.0, 4.0, 6.0, 0.02, None),
]
LONGER = [
    # predicted, measured, low, high, tolerance, how many times longer
    (100.0, 100.0, 96.0, 104.0, 0.02, 4.0),  # half the width for twice the tolerance
    (100.0, 101.0, 99.0, 103.0, 0.02, 4.0),  # half-width 2, room 1
    (100.0, 103.0, 101.0, 105.0, 0.02, 4.0),  # it will be shown to differ
    (100.0, 102.0, 101.0, 103.0, 0.02, 1e6),  # on the limit: never
    (100.0, 101.0, 98.5, 101.9, 0.01, 1e6),
    (1.0, 0.5, 0.0, 1.0, 0.02, 1.085),  # exact limits are not symmetric
    (100.0, 100.0, 97.99, 101.99, 0.02, 1.01),  # never 1 or less
    (100.0, None, None, None, 0.02, 2.0),
    (100.0, 100.0, None, None, 0.02, 2.0),
]


@pytest.mark.parametrize(("predicted", "measured", "low", "high", "tolerance", "verdict"), CASES)
def test_verdict_of(
    predicted: float | None, measured: float | None, low: float | None, high: float | None, tolerance: float,
    verdict: str | None,
) -> None:  # fmt: skip
    assert verdict_of(predicted, measured, low, high, tolerance) == verdict


@pytest.mark.parametrize(("predicted", "measured", "low", "high", "tolerance", "longer"), LONGER)
def test_inconclusive_row_says_how_much_longer_to_measure(
    predicted: float, measured: float | None, low: float | None, high: float | None, tolerance: float, longer: float
) -> None:
    value = None if measured is None else Measured(measured, low, high)
    row = compare(Row(CONTROL_MESSAGES, {}, predicted), value, tolerance)
    assert row.verdict == "inconclusive"
    assert row.as_json()["longer"] == pytest.approx(longer, rel=1e-3)


def test_compared_row_has_its_relative_error() -> None:
    row = compare(Row(CONTROL_MESSAGES, {}, 50.0), Measured(49.0, 48.0, 50.0), 0.05).as_json()
    assert row == {
        "metric": "rate.control", "labels": {}, "unit": "1/s", "predicted": 50.0, "measured": 49.0, "ci_low": 48.0,
        "ci_high": 50.0, "relative_error": pytest.approx(-0.02), "verdict": "agrees",
    }  # fmt: skip
    for predicted, measured in ((0.0, Measured(1.0, 0.5, 1.5)), (None, Measured(1.0, 0.5, 1.5)), (50.0, None)):
        assert compare(Row(CONTROL_MESSAGES, {}, predicted), measured, 0.02).relative_error is None
