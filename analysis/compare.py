"""Compares several runs of one scenario (grounds, seeds, routings) by the summaries of their analyses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.estimates import limits_of_difference
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.pairs import Interval, excludes_zero
from brokerbed.analysis.runs import Finished, summary_of

Row = tuple[str, tuple[tuple[str, str], ...]]  # metric and labels


@dataclass(frozen=True, slots=True)
class Change:
    """How much larger a row of one run is than that of another one."""

    value: float
    interval: Interval
    is_paired: bool  # whether the runs had the same random numbers (--pair); otherwise they count as independent

    @property
    def is_shown(self) -> bool:
        return excludes_zero(self.interval)

    def as_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "difference": self.value, "ci_low": low, "ci_high": high, "shown": self.is_shown, "paired": self.is_paired
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    names: tuple[str, ...]  # of the runs, consisting of the properties in which they differ
    rows: tuple[tuple[Row, tuple[dict[str, Any] | None, ...]], ...]  # with the entry in each run's summary
    differences: tuple[tuple[Change | None, ...], ...]  # of each row: how each run differs from the first one

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": list(self.names),
            "metrics": [
                {
                    "metric": metric,
                    "labels": dict(labels),
                    "values": list(values),
                    "differences": [None if change is None else change.as_json() for change in changes],
                }
                for ((metric, labels), values), changes in zip(self.rows, self.differences, strict=True)
            ],
        }


def missing(directories: Sequence[Finished]) -> list[Finished]:
    """The run directories that have not been analysed yet."""
    return [finished for finished in directories if summary_of(finished.folder) is None]


def comparison(directories: Sequence[Finished]) -> Comparison:
    """The headline rows of all runs; each point of a sweep counts as a run."""
    names: list[dict[str, str]] = []
    entries: list[dict[Row, dict[str, Any]]] = []
    paired: dict[Row, dict[str, Any]] = {}
    for finished in directories:
        summary = summary_of(finished.folder)
        if summary is None:
            raise RunError(f"{finished.folder / 'analysis'}: the summary cannot be read; analyse the run again")
        if not names:  # differences are from the first run
            paired = {_row(entry): entry for entry in summary.get("pair", {}).get("differences", ())}
        for number, point in enumerate(summary.get("points", [summary])):
            names.append(_name(finished, number, point))
            entries.append({_row(entry): entry for entry in point["metrics"] if _is_headline(entry)})
    rows = list(dict.fromkeys(row for run_entries in entries for row in run_entries))
    values = [tuple(run_entries.get(row) for run_entries in entries) for row in rows]
    changes = [
        (None, *(_change(of_row[0], other, paired.get(row) if number == 1 else None)
                 for number, other in enumerate(of_row[1:], 1)))
        for row, of_row in zip(rows, values, strict=True)
    ]  # fmt: skip
    return Comparison(tuple(_distinguished(names)), tuple(zip(rows, values, strict=True)), tuple(changes))


def _change(first: dict[str, Any] | None, other: dict[str, Any] | None, paired: dict[str, Any] | None) -> Change | None:
    """None where a value or an interval is missing."""
    if paired is not None and paired["ci_low"] is not None:
        return Change(paired["difference"], (paired["ci_low"], paired["ci_high"]), True)
    if first is None or other is None:
        return None
    limits = [(entry["measured"], entry["ci_low"], entry["ci_high"]) for entry in (first, other)]
    if any(value is None for entry in limits for value in entry):
        return None
    return Change(other["measured"] - first["measured"], limits_of_difference(limits[0], limits[1]), False)


def _row(entry: dict[str, Any]) -> Row:
    return entry["metric"], tuple(entry["labels"].items())


def _is_headline(entry: dict[str, Any]) -> bool:
    """False also if the package that registered the metric is no longer installed."""
    metric = metrics().get(entry["metric"])
    return metric is not None and metric.headline == tuple(entry["labels"])


def _name(finished: Finished, number: int, point: dict[str, Any]) -> dict[str, str]:
    scenario = finished.of_point(number)[0].scenario
    properties = {"scenario": scenario.name, "ground": point["on"], "routing": scenario.routing}
    properties |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in scenario.at.items()}
    seeds = point.get("seeds", [point["seed"]])
    return properties | {"seed": f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"}


def _distinguished(names: list[dict[str, str]]) -> list[str]:
    """Names made of the properties in which runs differ; otherwise of the ground and a number."""
    keys = [key for key in dict.fromkeys(key for name in names for key in name)
            if len({name.get(key) for name in names}) > 1]  # fmt: skip
    labels = [" ".join(filter(None, (name.get(key) for key in keys))) or name["ground"] for name in names]
    return [f"{label} ({number})" if labels.count(label) > 1 else label for number, label in enumerate(labels, 1)]
