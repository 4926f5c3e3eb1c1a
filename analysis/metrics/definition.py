"""What a metric consists of for the analysis: its record, the functions that predict it, the functions that measure it.

Predictions need no Spark, so this folder imports neither Spark nor the transforms; the functions that measure import
them when they are called.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from brokerbed.analysis.link_load import NarrowDirection
from brokerbed.analysis.models.contract import Traffic
from brokerbed.analysis.models.regression import Estimate
from brokerbed.analysis.queues import Queue, Way
from brokerbed.metrics import Labels, Metric, Row
from brokerbed.scenario import Scenario
from brokerbed.scenario.topology import Floats

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts

Values = Iterable[tuple[tuple[str, ...], float | Estimate]]  # the values of the labels, and the value of the row


@dataclass(frozen=True, slots=True)
class Theory:
    """What the models know of one scenario, and how the values of metrics are taken from it; nan is unknown."""

    scenario: Scenario
    traffic: Traffic  # of the classes and of all copies of the peers
    ways: Sequence[Way]
    stages: Sequence[Queue]
    narrow: Sequence[NarrowDirection]  # directions of links with a bandwidth

    def total(self, *parts: Floats) -> Values:
        """One value: the sum of everything."""
        return [((), sum(float(part.sum()) for part in parts))]

    def total_of(self, value: float) -> Values:
        return [((), value)]

    def total_counted(self, up: Floats, down: Floats) -> Values:
        """The sum over the links of all brokers, without what media send, in either direction."""
        tree, media = self.scenario.tree, [self.scenario.tree.index[name] for name in self.scenario.media]
        if not media:
            return self.total(up, down)
        from_child = ~np.isin(np.arange(len(tree)), media)
        return self.total(up[from_child], down[~np.isin(tree.parents, media)])

    def per_broker(self, values: Floats) -> Values:
        """The values are in the order of the tree."""
        return [((name,), value) for name, value in zip(self.scenario.tree.names, values.tolist(), strict=True)]

    def per_link(self, up: Floats, down: Floats | None = None) -> Values:
        """Each broker has the values of the link to its parent: towards the root, and away from it if that exists."""
        upwards = up.tolist()[1:]
        downwards = [None] * len(upwards) if down is None else down.tolist()[1:]
        for (child, parent), up_value, down_value in zip(self.scenario.tree.links, upwards, downwards, strict=True):
            yield (f"{child}>{parent}",), up_value
            if down_value is not None:
                yield (f"{parent}>{child}",), down_value

    def per_pair(self, value: Callable[[Way], float | Estimate]) -> Values:
        """Several streams of one peer to the same receiver take the same way."""
        return {(way.publisher, way.subscriber): value(way) for way in self.ways}.items()

    def per_exchange(self, value: Callable[[Way, Way], float | Estimate]) -> Values:
        """The values are of the ways there and back."""
        ways = {(way.publisher, way.subscriber): way for way in self.ways}
        for requester, responder in self.scenario.exchanges():
            there, back = ways[requester.id, responder.id], ways[responder.id, requester.id]
            yield (requester.id, responder.id), value(there, back)


Predict = Callable[[Theory], Values]
Measure = Callable[["Facts"], "DataFrame | pd.DataFrame | None"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric with the functions that predict its headline rows and its detail rows, and those that measure them.

    A function that measures returns cells (`analysis/transforms/__init__.py` has their columns): a DataFrame of Spark,
    or of pandas if they follow from the tally (`analysis/tallies.py`), or None if no run has any. Metrics that one pass
    over the log measures together name the same function, which is called once.
    """

    metric: Metric
    headline: Predict | None = None
    detail: Predict | None = None
    measured_by: tuple[Measure, ...] = ()
    applies: Callable[[Scenario], bool] = lambda _: True  # otherwise the scenario has no such rows

    @property
    def name(self) -> str:
        return self.metric.name

    def headline_rows(self, theory: Theory) -> Iterator[Row]:
        return self._rows(self.metric.headline, self.headline, theory)

    def detail_rows(self, theory: Theory) -> Iterator[Row]:
        return self._rows(self.metric.detail, self.detail, theory)

    def _rows(self, names: Labels | None, predict: Predict | None, theory: Theory) -> Iterator[Row]:
        if predict is None or not self.applies(theory.scenario):
            return
        assert names is not None, f"{self.metric.name} predicts rows whose labels it does not name"
        for labels, value in predict(theory):
            mean, error = (value.mean, value.standard_error) if isinstance(value, Estimate) else (value, None)
            is_known = not isnan(mean)
            yield Row(
                self.metric,
                dict(zip(names, labels, strict=True)),
                mean if is_known else None,
                error if is_known else None,
            )
