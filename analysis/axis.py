"""A key of a scenario that takes all values of a range: how the range is written, and the scenarios at its values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log
from pathlib import Path

from brokerbed.analysis.errors import AdviceError
from brokerbed.scenario import ALGORITHMS, Scenario, ScenarioError, load_at
from brokerbed.scenario.units import in_base_unit

LOG_FROM = 10.0  # a range whose end is so many times its beginning has a logarithmic axis
ROUTING = "routing"
WHOLE = "must be a whole number"  # how the format refuses other numbers


@dataclass(frozen=True, slots=True)
class Axis:
    """The range from `low` to `high`. Values are in base units: s, /s, B, bit/s, %, or none."""

    key: str
    low: float
    high: float
    unit: str
    is_whole: bool = False

    @property
    def is_log(self) -> bool:
        return self.low > 0 and self.high / self.low >= LOG_FROM

    def place(self, value: float) -> float:
        """On the axis."""
        return log(value) if self.is_log else value

    def value(self, place: float) -> float:
        return min(max(exp(place) if self.is_log else place, self.low), self.high)  # in spite of rounding

    def written(self, value: float) -> str | float:
        """As in a scenario file."""
        if self.is_whole:
            return int(value)
        return f"{value!r}{self.unit}" if self.unit else value

    def shown(self, value: float) -> str:
        """A rounded value for people."""
        return f"{value:.7g}{' ' if self.unit and self.unit[0] != '/' else ''}{self.unit}"

    @property
    def parameter(self) -> str | None:
        """The parameter of routing algorithms that the key is; None if it is another key."""
        return self.key.removeprefix(f"{ROUTING}.") if self.key.startswith(f"{ROUTING}.") else None

    def scenarios(self, file: Path, values: Sequence[float]) -> list[Scenario]:
        """The scenario of the file at these values of the key; AdviceError if they do not fit there."""
        if self.parameter is not None:
            base = load_at(file, [{}])[0]
            return [replace(base, at={self.key: self.written(value)}) for value in values]
        try:
            return load_at(file, [{self.key: self.written(value)} for value in values])
        except ScenarioError as error:
            problem = error.problems[0]
            key = problem.key.removeprefix("sweep.")
            where = "" if key == self.key else f" ({self.key}={self.written(values[0])})"
            raise AdviceError(f"{key}: {problem.message}{where}") from None

    def parameters(self, own: Mapping[str, int], value: float) -> dict[str, int]:
        """Those of an algorithm at this value."""
        return {name: int(value) if name == self.parameter else given for name, given in own.items()}


def axis_of(text: str, file: Path) -> Axis:
    """From KEY=A..B; AdviceError if there is no such key in scenarios, or no range of numbers."""
    key, equals, ends = (part.strip() for part in text.partition("="))
    first, dots, last = (part.strip() for part in ends.partition(".."))
    if not (key and equals and dots and first and last):
        raise AdviceError(f"{text} is no KEY=A..B, as in subscriptions.mean_active=10..1000")
    low, high, unit = _range(key, first, last)
    if not low < high:
        raise AdviceError(f"{key}: the range from {first} to {last} is {'empty' if low == high else 'reversed'}")
    axis = Axis(key, low, high, unit)
    if axis.parameter is not None or key == ROUTING:
        return _of_parameter(axis)
    try:
        axis.scenarios(file, [(low + high) / 2 + (high - low) / 1000])
    except AdviceError as error:
        if WHOLE not in str(error) or unit or not (low.is_integer() and high.is_integer()):
            raise
        axis = replace(axis, is_whole=True)
    axis.scenarios(file, [low, high])
    return axis


def _range(key: str, first: str, last: str) -> tuple[float, float, str]:
    """If only the last one has a unit, it is that of both."""
    try:
        high, unit = in_base_unit(last)
        low, unit_of_low = in_base_unit(first)
        if unit and not unit_of_low:
            low, unit_of_low = in_base_unit(first + last.lstrip("+-.0123456789eE"))
    except ValueError:
        raise AdviceError(f"{key}: {first}..{last} is no range of numbers, as in 10..1000 or 2/min..12/min") from None
    if unit != unit_of_low:
        raise AdviceError(f"{key}: {first} and {last} are different kinds of quantities")
    if not (isfinite(low) and isfinite(high)):
        raise AdviceError(f"{key}: {first}..{last} is no range of finite numbers")
    return low, high, unit


def _of_parameter(axis: Axis) -> Axis:
    known = {parameter.name: parameter for algorithm in ALGORITHMS.all.values() for parameter in algorithm.parameters}
    parameter = known.get(axis.parameter or "")
    if parameter is None:
        names = ", ".join(f"{ROUTING}.{name}" for name in known)
        raise AdviceError(f"{axis.key}: algorithms are what is compared; of their parameters there is {names}")
    if axis.unit or not axis.low.is_integer() or not axis.high.is_integer() or axis.low < parameter.minimum:
        raise AdviceError(f"{axis.key}: must be whole numbers from {parameter.minimum} on")
    return replace(axis, is_whole=True)
