"""Measured beside predicted: agrees, differs, inconclusive. Pure."""

from dataclasses import dataclass
from math import isnan
from typing import Any

from analysis.predict import Row

AGREES, DIFFERS, INCONCLUSIVE = "agrees", "differs", "inconclusive"
HALF_WIDTH_MAX = 0.1  # of the prediction: an interval that is wider tells nothing
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

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric, "labels": self.labels, "unit": self.unit, "predicted": self.predicted,
            "measured": self.measured, "ci_low": self.ci_low, "ci_high": self.ci_high,
            "relative_error": self.relative_error, "verdict": self.verdict,
        }  # fmt: skip


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
    return Compared(
        row.metric, row.labels, row.unit, row.is_headline, row.predicted, value, ci_low, ci_high, error, verdict
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
    if ci_low is None or ci_high is None or (ci_high - ci_low) / 2 > HALF_WIDTH_MAX * abs(predicted):
        return INCONCLUSIVE
    allowed = tolerance * abs(predicted)
    return AGREES if ci_low - allowed <= predicted <= ci_high + allowed else DIFFERS
