"""Axes: mapping values to coordinates, choosing ticks, and formatting numbers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, log10

TICKS = 6  # approximately
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LOG_STEPS = (1.0, 2.0, 5.0, 10.0)
DECADES_MANY = 3  # from here on only powers of ten have ticks


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` to coordinates from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = log10(max(value, self.low / 10)), log10(low), log10(high)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def clipped(self, value: float) -> float:
        return self(min(max(value, self.low), self.high))

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.is_log else linear_ticks(self.low, self.high)


def scale(values: Sequence[float], begin: float, end: float, is_log: bool = False, from_zero: bool = False) -> Scale:
    """A scale that shows all values and has round limits."""
    drawn = [value for value in values if isfinite(value) and (value > 0 or not is_log)]
    low, high = min(drawn, default=1.0 if is_log else 0.0), max(drawn, default=1.0)
    if is_log:
        low, high = _log_limits(low, high)
    else:
        low = min(low, 0.0) if from_zero else low
        if high <= low:
            high = low + (abs(low) or 1.0)
        step = _step(low, high)
        low, high = floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step
    return Scale(low, high, begin, end, is_log)


def _log_limits(low: float, high: float) -> tuple[float, float]:
    """Limits at 1, 2 or 5 times a power of ten, so that little of the axis is empty; at least a decade."""
    below, above = 10.0 ** floor(log10(low) + 1e-9), 10.0 ** floor(log10(high) + 1e-9)
    low = max(step * below for step in LOG_STEPS if step * below <= low * (1 + 1e-9))
    high = min(step * above for step in LOG_STEPS if step * above >= high * (1 - 1e-9))
    return low, max(high, 10 * low)


def linear_ticks(low: float, high: float, wanted: int = TICKS) -> list[float]:
    step = _step(low, high, wanted)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten: not all if they are many, and their multiples by 2 and 5 if they are few."""
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    if log10(high / low) < DECADES_MANY:
        ticks = [step * 10.0**power for power in range(first - 1, last + 1) for step in LOG_STEPS[:-1]]
        return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    every = max(1, ceil((last - first) / 8))
    return [10.0**power for power in range(first, last + 1, every)]


def _step(low: float, high: float, wanted: int = TICKS) -> float:
    rough = (high - low) / wanted
    power = 10.0 ** floor(log10(rough))
    return next(step * power for step in STEPS if step * power >= rough * (1 - 1e-9))


def number(value: float | None) -> str:
    """A number with four significant digits."""
    if value is None or value in (inf, -inf):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-4:
        return f"{value:.3g}"
    digits = max(0, 3 - floor(log10(abs(value))))
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "\u2212")


def on_axis(value: float) -> str:
    if value and abs(value) >= 1e6:
        power = floor(log10(abs(value)) + 1e-9)
        factor = value / 10**power
        return (f"{factor:g}·" if abs(factor - 1) > 1e-9 else "") + "10" + str(power).translate(_RAISED)
    if value and abs(value) < 1e-3:
        power = floor(log10(abs(value)) + 1e-9)
        factor = round(value / 10**power, 6)
        return (f"{factor:g}·" if factor != 1 else "") + "10" + str(power).translate(_RAISED)
    return f"{value:,.10g}".replace("-", "\u2212")


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
