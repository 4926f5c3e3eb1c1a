"""Compares measured with predicted values: the verdict is agrees, differs or inconclusive. Pure.

The verdict is an equivalence test. A row agrees if its interval lies within the band of the prediction plus or minus
the tolerance, and differs if its interval lies outside the band; otherwise it was not measured long enough.
"""

from dataclasses import dataclass
from math import isnan
from typing import Any

from brokerbed.metrics import Row, method_of

AGREES, DIFFERS, INCONCLUSIVE = "agrees", "differs", "inconclusive"
LONGER_MIN, LONGER_MAX = 1.01, 1e6  # bounds of the advice how many times longer to measure
LONGER_UNKNOWN = 2.0  # without an interval, so that batches can be merged once more


@dataclass(frozen=True, slots=True)
class Measured:
    value: float
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of the comparison."""

    metric: str
    labels: dict[str, str]
    unit: str
    is_headline: bool
    predicted: float | None
    measured: float | None
    ci_low: float | None
    ci_high: float | None
    relative_error: float | None
    verdict: str | None
    longer: float | None = None  # how many times longer to measure for a verdict
    standard_error: float | None = None  # of the prediction, if it was simulated

    def as_json(self) -> dict[str, Any]:
        entry = {
            "metric": self.metric, "labels": self.labels, "unit": self.unit, "predicted": self.predicted,
            "measured": self.measured, "ci_low": self.ci_low, "ci_high": self.ci_high,
            "relative_error": self.relative_error, "verdict": self.verdict,
        }  # fmt: skip
        entry |= method_of(self.standard_error)
        return entry if self.longer is None else entry | {"longer": self.longer}


def compare(row: Row, measured: Measured | None, tolerance: float) -> Compared:
    value = ci_low = ci_high = error = None
    if measured is not None:
        value, ci_low, ci_high = measured.value, measured.ci_low, measured.ci_high
        if row.predicted:
            error = value / row.predicted - 1
    verdict = verdict_of(row.predicted, value, ci_low, ci_high, tolerance)
    longer = longer_by(row.predicted, value, ci_low, ci_high, tolerance) if verdict == INCONCLUSIVE else None
    return Compared(
        row.metric, row.labels, row.unit, row.is_headline, row.predicted, value, ci_low, ci_high, error, verdict,
        longer, row.standard_error,
    )  # fmt: skip


def verdict_of(
    predicted: float | None, value: float | None, ci_low: float | None, ci_high: float | None, tolerance: float
) -> str | None:
    """None if there is no prediction."""
    if predicted is None or isnan(predicted):
        return None
    if value is None:
        return INCONCLUSIVE
    if predicted == 0:
        return AGREES if value == 0 else DIFFERS
    if ci_low is None or ci_high is None:
        return INCONCLUSIVE
    allowed = tolerance * abs(predicted)
    if predicted - allowed <= ci_low and ci_high <= predicted + allowed:
        return AGREES
    return DIFFERS if ci_low > predicted + allowed or ci_high < predicted - allowed else INCONCLUSIVE


def longer_by(
    predicted: float | None, value: float | None, ci_low: float | None, ci_high: float | None, tolerance: float
) -> float:
    """How many times longer to measure an inconclusive row: its interval shrinks with the square root of the time."""
    if predicted is None or value is None or ci_low is None or ci_high is None:
        return LONGER_UNKNOWN
    room = abs(tolerance * abs(predicted) - abs(value - predicted))
    half = (ci_high - ci_low) / 2
    return min(max((half / room) ** 2, LONGER_MIN), LONGER_MAX) if room > 0 else LONGER_MAX
