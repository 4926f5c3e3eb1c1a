"""Predictions between the points of a sweep, for smooth curves. The models are evaluated again, which is fast."""

from collections.abc import Sequence
from pathlib import Path

from brokerbed.analysis.predict import predict
from brokerbed.analysis.report.data import Point
from brokerbed.analysis.report.figures import (
    POPULATION,
    SUBSCRIPTIONS,
    Axes,
    Between,
    axes_of,
    is_logarithmic,
    quantity,
)
from brokerbed.scenario import ScenarioError, load_at
from brokerbed.scenario.units import NS_PER_S

PREDICTIONS_MAX = 280  # in total; each takes some milliseconds
STEPS_MIN, STEPS_MAX = 8, 48  # points of one curve


def between(file: Path, points: Sequence[Point]) -> Between:
    """Predicted values by headline row and curve. Empty if the axis is not a continuous quantity, or links move."""
    axes = axes_of(points)
    if axes.x is None or not _is_continuous(axes) or any(point.scenario.placement is not None for point in points):
        return {}
    groups = axes.groups()
    steps = min(STEPS_MAX, PREDICTIONS_MAX // len(groups))
    if steps < STEPS_MIN:
        return {}
    curves: Between = {}
    for group, group_points in groups.items():
        first, last = (quantity(point.scenario.at[axes.x]) for point in (group_points[0], group_points[-1]))
        assert first is not None
        assert last is not None
        values = _spaced(axes, first, last, steps)
        at = {key: value for key, value in group_points[0].scenario.at.items() if key != axes.x}
        try:
            scenarios = load_at(file, [{**at, axes.x: _written(axes.x, value)} for value in values])  # type: ignore[dict-item]
        except ScenarioError:  # a value between two valid ones may be invalid
            return {}
        for scenario in scenarios:
            x = axes.place_of(scenario)
            assert x is not None
            for row in predict(scenario, detail=False).rows:
                if row.predicted is not None:
                    key = row.metric, tuple(row.labels.values())
                    curves.setdefault(key, {}).setdefault(group, []).append((x, row.predicted))
    return curves


def _is_continuous(axes: Axes) -> bool:
    """Whether the axis can take any value, and no setting that the chart does not show changes with it."""
    is_quantity = axes.x is not None and (axes.x == SUBSCRIPTIONS or axes.x.endswith((".rate", ".mean")))
    shown = {axes.x, *axes.others}
    settings = [point.scenario.at for point in axes.points]
    others = {key for setting in settings for key in setting if key not in shown and not key.startswith("clock.")}
    return (
        is_quantity
        and all(len({str(setting.get(key)) for setting in settings}) == 1 for key in others)
        and not any(isinstance(value, list | dict) for setting in settings for value in setting.values())
    )


def _spaced(axes: Axes, first: float, last: float, steps: int) -> list[float]:
    shares = [step / (steps - 1) for step in range(steps)]
    is_of_population = axes.x is not None and axes.x.startswith(POPULATION)  # few are active if they are rarely on
    if (is_logarithmic(axes) or is_of_population) and first > 0:
        return [first * (last / first) ** share for share in shares]
    return [first + (last - first) * share for share in shares]


def _written(key: str, value: float) -> str | float:
    if key == SUBSCRIPTIONS:
        return value
    return f"{value!r}/s" if key.endswith(".rate") else f"{round(value * NS_PER_S)}ns"
