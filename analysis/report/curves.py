"""Predictions between the points of a sweep, so that curves are curves; the models are asked again, which is quick."""

from collections.abc import Sequence
from pathlib import Path

from brokerbed.analysis.predict import predict
from brokerbed.analysis.report.data import Point
from brokerbed.analysis.report.figures import SUBSCRIPTIONS, Axes, Between, axes_of, is_logarithmic
from brokerbed.scenario import ScenarioError, load_at
from brokerbed.scenario.units import NS_PER_S

PREDICTIONS_MAX = 280  # in all; each takes some milliseconds
STEPS_MIN, STEPS_MAX = 8, 48  # values of one curve


def between(file: Path, points: Sequence[Point]) -> Between:
    """Per headline row and curve: places and predicted values. Empty where the axis is no continuous quantity."""
    axes = axes_of(points)
    if axes.x is None or not _is_continuous(axes):
        return {}
    groups = axes.groups()
    steps = min(STEPS_MAX, PREDICTIONS_MAX // len(groups))
    if steps < STEPS_MIN:
        return {}
    found: Between = {}
    for group, its in groups.items():
        xs = _spaced(axes, axes.place(its[0]), axes.place(its[-1]), steps)
        at = {key: value for key, value in its[0].scenario.at.items() if key != axes.x}
        try:
            scenarios = load_at(file, [{**at, axes.x: _written(axes.x, x)} for x in xs])  # type: ignore[dict-item]
        except ScenarioError:  # a value between two good ones need not be one
            return {}
        for x, scenario in zip(xs, scenarios, strict=True):
            for row in predict(scenario, detail=False).rows:
                if row.predicted is not None:
                    key = row.metric, tuple(row.labels.values())
                    found.setdefault(key, {}).setdefault(group, []).append((x, row.predicted))
    return found


def _is_continuous(axes: Axes) -> bool:
    """The axis takes any value, and nothing that is not on the page changes along with it."""
    is_quantity = axes.x is not None and (axes.x == SUBSCRIPTIONS or axes.x.endswith((".rate", ".mean")))
    shown = {axes.x, *axes.others}
    at = [point.scenario.at for point in axes.points]
    others = {key for it in at for key in it if key not in shown and not key.startswith("clock.")}
    return (
        is_quantity
        and all(len({str(it.get(key)) for it in at}) == 1 for key in others)
        and not any(isinstance(value, list | dict) for it in at for value in it.values())
    )


def _spaced(axes: Axes, low: float, high: float, steps: int) -> list[float]:
    shares = [step / (steps - 1) for step in range(steps)]
    if is_logarithmic(axes) and low > 0:
        return [low * (high / low) ** share for share in shares]
    return [low + (high - low) * share for share in shares]


def _written(key: str, value: float) -> str | float:
    if key == SUBSCRIPTIONS:
        return value
    return f"{value!r}/s" if key.endswith(".rate") else f"{round(value * NS_PER_S)}ns"
