"""Measured beside predicted: agrees, differs, inconclusive. Pure.

The verdict is an equivalence test: `agrees` is shown by an interval that lies within the band of the prediction and its
tolerance, `differs` by one that lies outside; what does neither was not measured long enough.
"""

from dataclasses import dataclass
from math import isnan
from typing import Any

from brokerbed.metrics import Row

AGREES, DIFFERS, INCONCLUSIVE = "agrees", "differs", "inconclusive"
LONGER_MIN, LONGER_MAX = 1.01, 1e6  # times as long as was measured
LONGER_UNKNOWN = 2.0  # without an interval: batches can be merged once more
LABELS = {
    "table": ("broker",),
    "rate": ("link",),
    "delay.end_to_end": ("publisher", "subscriber"),
    "delay.stage": ("stage", "at"),
    "delivery.ratio": ("publisher", "subscriber"),
}


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
    longer: float | None = None  # how many times longer to measure until the verdict can be told

    def as_json(self) -> dict[str, Any]:
        told = {
            "metric": self.metric, "labels": self.labels, "unit": self.unit, "predicted": self.predicted,
            "measured": self.measured, "ci_low": self.ci_low, "ci_high": self.ci_high,
            "relative_error": self.relative_error, "verdict": self.verdict,
        }  # fmt: skip
        return told if self.longer is None else told | {"longer": self.longer}


def labels_of(metric: str, first: str, second: str) -> dict[str, str]:
    """The labels of a measured row, which the transforms keep as two columns; empty ones are none."""
    names = LABELS.get(metric) or LABELS[metric.split(".", 1)[0]]
    return {name: value for name, value in zip(names, (first, second), strict=False) if value}


def compare(row: Row, measured: Measured | None, tolerance: float) -> Compared:
    value = ci_low = ci_high = error = None
    if measured is not None:
        value, ci_low, ci_high = measured.value, measured.ci_low, measured.ci_high
        if row.predicted:
            error = value / row.predicted - 1
    verdict = verdict_of(row.predicted, value, ci_low, ci_high, tolerance)
    longer = longer_by(row.predicted, value, ci_low, ci_high, tolerance) if verdict == INCONCLUSIVE else None
    return Compared(
        row.metric, row.labels, row.unit, row.is_headline, row.predicted, value, ci_low, ci_high, error, verdict, longer
    )


def verdict_of(
    predicted: float | None, value: float | None, ci_low: float | None, ci_high: float | None, tolerance: float
) -> str | None:
    """None where theory has no value."""
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
    """Of an inconclusive row: half the interval shrinks with the root of the time, until it fits beside the error."""
    if predicted is None or value is None or ci_low is None or ci_high is None:
        return LONGER_UNKNOWN
    room = abs(tolerance * abs(predicted) - abs(value - predicted))
    half = (ci_high - ci_low) / 2
    return min(max((half / room) ** 2, LONGER_MIN), LONGER_MAX) if room > 0 else LONGER_MAX
