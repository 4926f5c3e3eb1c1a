"""Several runs of one scenario side by side: grounds, seeds, routings. From the summaries of their analyses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.runs import Finished, summary_of
from brokerbed.metrics import HEADLINE_PER_PAIR

Row = tuple[str, tuple[tuple[str, str], ...]]  # metric and labels


@dataclass(frozen=True, slots=True)
class Comparison:
    names: tuple[str, ...]  # of the runs, by what tells them apart
    rows: tuple[tuple[Row, tuple[dict[str, Any] | None, ...]], ...]  # the entry of each run's summary

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": list(self.names),
            "metrics": [
                {"metric": metric, "labels": dict(labels), "values": list(values)}
                for (metric, labels), values in self.rows
            ],
        }


def missing(found: Sequence[Finished]) -> list[Finished]:
    """Those that were not analysed yet."""
    return [it for it in found if summary_of(it.folder) is None]


def comparison(found: Sequence[Finished]) -> Comparison:
    """The headline rows of all runs; points of sweeps are runs of their own."""
    names, metrics = [], []
    for finished in found:
        summary = summary_of(finished.folder)
        if summary is None:
            raise RunError(f"{finished.folder / 'analysis'}: the summary cannot be read; analyse the run again")
        for number, point in enumerate(summary.get("points", [summary])):
            names.append(_name(finished, number, point))
            metrics.append({_row(it): it for it in point["metrics"] if _is_headline(it)})
    rows = list(dict.fromkeys(row for its in metrics for row in its))
    return Comparison(tuple(_told_apart(names)), tuple((row, tuple(its.get(row) for its in metrics)) for row in rows))


def _row(entry: dict[str, Any]) -> Row:
    return entry["metric"], tuple(entry["labels"].items())


def _is_headline(entry: dict[str, Any]) -> bool:
    return not entry["labels"] or entry["metric"] in HEADLINE_PER_PAIR


def _name(finished: Finished, number: int, point: dict[str, Any]) -> dict[str, str]:
    scenario = finished.of_point(number)[0].scenario
    told = {"scenario": scenario.name, "ground": point["on"], "routing": scenario.routing}
    told |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in scenario.at.items()}
    seeds = point.get("seeds", [point["seed"]])
    return told | {"seed": f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"}


def _told_apart(names: list[dict[str, str]]) -> list[str]:
    """Each by what is not the same of all; by the ground and a number if nothing else."""
    keys = [key for key in dict.fromkeys(key for name in names for key in name)
            if len({name.get(key) for name in names}) > 1]  # fmt: skip
    found = [" ".join(filter(None, (name.get(key) for key in keys))) or name["ground"] for name in names]
    return [f"{it} ({number})" if found.count(it) > 1 else it for number, it in enumerate(found, 1)]
