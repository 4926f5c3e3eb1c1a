"""Compares several runs of one scenario (grounds, seeds, routings) by the summaries of their analyses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.runs import Finished, summary_of

Row = tuple[str, tuple[tuple[str, str], ...]]  # metric and labels


@dataclass(frozen=True, slots=True)
class Comparison:
    names: tuple[str, ...]  # of the runs, consisting of the properties in which they differ
    rows: tuple[tuple[Row, tuple[dict[str, Any] | None, ...]], ...]  # with the entry in each run's summary

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": list(self.names),
            "metrics": [
                {"metric": metric, "labels": dict(labels), "values": list(values)}
                for (metric, labels), values in self.rows
            ],
        }


def missing(directories: Sequence[Finished]) -> list[Finished]:
    """The run directories that have not been analysed yet."""
    return [finished for finished in directories if summary_of(finished.folder) is None]


def comparison(directories: Sequence[Finished]) -> Comparison:
    """The headline rows of all runs; each point of a sweep counts as a run."""
    names, entries = [], []
    for finished in directories:
        summary = summary_of(finished.folder)
        if summary is None:
            raise RunError(f"{finished.folder / 'analysis'}: the summary cannot be read; analyse the run again")
        for number, point in enumerate(summary.get("points", [summary])):
            names.append(_name(finished, number, point))
            entries.append({_row(entry): entry for entry in point["metrics"] if _is_headline(entry)})
    rows = list(dict.fromkeys(row for run_entries in entries for row in run_entries))
    return Comparison(
        tuple(_distinguished(names)),
        tuple((row, tuple(run_entries.get(row) for run_entries in entries)) for row in rows),
    )


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
