"""Which routing algorithm is cheapest for a scenario, by the models; and where along a key of it the answer changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from brokerbed.analysis.axis import Axis, axis_of
from brokerbed.analysis.envelope import CLOSE, NONE, changes, changes_of_whole, smallest
from brokerbed.analysis.errors import AdviceError
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.models.stacking import CELLS_MAX
from brokerbed.analysis.predict import Prediction, predict
from brokerbed.analysis.totals import DELAY, Totals, as_compared, totals
from brokerbed.metrics import ALL_MESSAGES, TOTAL
from brokerbed.scenario import ALGORITHMS, Scenario, ScenarioError, load_at
from brokerbed.scenario.topology import Floats

BY = ALL_MESSAGES.name
WHOLE_MAX = 64  # whole numbers of a range that are all looked at; of more, so many
NOISE = 5.0  # standard errors; what simulated delays differ by less says nothing


@dataclass(frozen=True, slots=True)
class Candidate:
    """An algorithm that the scenario allows."""

    scenario: Scenario
    predicted: Mapping[str, float | None]  # the totals, by metric
    total: float | None  # of the metric by which algorithms are compared
    prediction: Prediction

    @property
    def routing(self) -> str:
        return self.scenario.routing


@dataclass(frozen=True, slots=True)
class Refused:
    routing: str
    reason: str


@dataclass(frozen=True, slots=True)
class Crossing:
    """From this value of the key on another algorithm is the cheapest; None where none has a prediction."""

    at: float
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Along:
    """What is cheapest along a key."""

    axis: Axis
    crossings: tuple[Crossing, ...]
    best: str | None  # at the beginning of the range

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.axis.key, "from": self.axis.low, "to": self.axis.high, "unit": self.axis.unit,
            "best": self.best,
            "crossings": [{"at": it.at, "from": it.before, "to": it.after} for it in self.crossings],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice:
    file: Path
    name: str
    by: str
    candidates: tuple[Candidate, ...]  # the cheapest first, those without a prediction last
    refused: tuple[Refused, ...]
    along: Along | None

    @property
    def best(self) -> Candidate | None:
        first = self.candidates[0]
        return None if first.total is None else first

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.name,
            "by": self.by,
            "algorithms": [
                {"routing": it.routing, "predicted": dict(it.predicted), "total": it.total} for it in self.candidates
            ],
            "refused": [{"routing": it.routing, "reason": it.reason} for it in self.refused],
            "best": self.best.routing if self.best else None,
            "over": None if self.along is None else self.along.as_json(),
        }


def advise(file: Path, by: str = BY, over: str | None = None) -> Advice:
    """The advice for the scenario of a file without its sweep. ScenarioError or AdviceError if there is none."""
    _check_metric(by)
    base = load_at(file, [{}])[0]
    allowed, refused = _allowed(file, base)
    found = []
    for scenario in allowed:
        prediction = predict(as_compared(scenario, by), detail=False)
        predicted = totals(prediction.scenario, prediction.rows, by)
        if by not in predicted and _applies_to_none(by, scenario):
            raise AdviceError(f"--by {by}: {base.name} has no such value{_needed(by)}")
        found.append(Candidate(scenario, predicted, predicted.get(by), prediction))
    found.sort(key=lambda it: inf if it.total is None else float(f"{it.total:.9e}"))  # of equal ones the first is best
    along = None if over is None else _along(Curves(file, axis_of(over, file), by, tuple(found)))
    return Advice(file, base.name, by, tuple(found), tuple(refused), along)


def _check_metric(by: str) -> None:
    known = [name for name, metric in metrics().items() if metric.headline == TOTAL]
    if by not in (*known, DELAY):
        raise AdviceError(f"--by: must be {', '.join(known)} or {DELAY}, not {by}")


def _applies_to_none(by: str, scenario: Scenario) -> bool:
    """Whether a metric is missing because of the scenario, not because of the algorithm."""
    return by == DELAY or (by == "cost.routing" and scenario.costs is None)


def _needed(by: str) -> str:
    return "; it needs publishers and subscribers" if by == DELAY else "; it needs `costs`"


def _allowed(file: Path, base: Scenario) -> tuple[list[Scenario], list[Refused]]:
    """The scenario with each algorithm; its own one keeps its parameters."""
    allowed, refused = [], []
    for name in ALGORITHMS.all:
        try:
            scenario = base if name == base.routing else load_at(file, [{"routing": name}])[0]
            allowed.append(replace(scenario, at={"routing": name}))
        except ScenarioError as error:
            refused.append(Refused(name, error.problems[0].message))
    return allowed, refused


class Curves:
    """What each algorithm costs along a key."""

    def __init__(self, file: Path, axis: Axis, by: str, candidates: Sequence[Candidate]) -> None:
        self.file, self.axis, self.by = file, axis, by
        self.candidates = sorted(candidates, key=lambda it: [*ALGORITHMS.all].index(it.routing))

    def at(self, values: Sequence[float], which: Sequence[int]) -> Floats:
        """A row per value of the key and a column per algorithm; inf where there is no prediction."""
        parts = [values[start : start + self._at_once] for start in range(0, len(values), self._at_once)]
        return np.vstack([self._part(part, which) for part in parts])

    def _part(self, values: Sequence[float], which: Sequence[int]) -> Floats:
        every = Totals(self.axis.scenarios(self.file, values), self.by)
        columns = [every.of(self.candidates[number].routing, self._parameters(number, values)) for number in which]
        return np.column_stack(columns)

    @property
    def _at_once(self) -> int:
        """How many values fit into memory together: classes with workloads of their own are columns of their own."""
        scenario = self.candidates[0].scenario
        cells = (*scenario.subscriptions.overrides, *scenario.publications.overrides_per_s)
        columns = len({number for _, number in cells}) + 1
        return max(1, CELLS_MAX // (columns * len(scenario.tree)))

    def _parameters(self, number: int, values: Sequence[float]) -> list[dict[str, int]]:
        own = self.candidates[number].scenario.routing_parameters
        return [self.axis.parameters(own, value) for value in values]

    @property
    def closeness(self) -> float:
        """What simulated delays differ by, relatively, says little."""
        rows = [row for it in self.candidates for row in it.prediction.rows if row.standard_error is not None]
        errors = [NOISE * row.standard_error / row.predicted for row in rows if row.standard_error and row.predicted]
        return max([CLOSE, *errors])

    def name(self, number: int) -> str | None:
        return None if number == NONE else self.candidates[number].routing


def _along(curves: Curves) -> Along:
    axis, count = curves.axis, len(curves.candidates)
    if axis.is_whole:
        found = changes_of_whole(curves.at, count, whole_values(axis))
        crossings = [Crossing(it.at, curves.name(it.before), curves.name(it.after)) for it in found]
    else:

        def at_places(places: Sequence[float], which: Sequence[int]) -> Floats:
            return curves.at([axis.value(place) for place in places], which)

        found = changes(at_places, count, axis.place(axis.low), axis.place(axis.high), curves.closeness)
        crossings = [Crossing(axis.value(it.at), curves.name(it.before), curves.name(it.after)) for it in found]
    best = crossings[0].before if crossings else curves.name(_cheapest_at(curves, axis.low))
    return Along(axis, tuple(crossings), best)


def _cheapest_at(curves: Curves, value: float) -> int:
    return smallest(curves.at([value], range(len(curves.candidates)))[0])


def whole_values(axis: Axis) -> list[int]:
    """Those of a range that are all looked at."""
    count = int(axis.high - axis.low) + 1
    spaced = np.geomspace if axis.is_log else np.linspace
    values = range(int(axis.low), int(axis.high) + 1) if count <= WHOLE_MAX else spaced(axis.low, axis.high, WHOLE_MAX)
    return np.unique(np.rint(np.array(values)).astype(int)).tolist()  # type: ignore[no-any-return]
