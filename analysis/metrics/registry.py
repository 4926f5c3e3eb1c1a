"""All metrics: those of this folder, and those of other packages.

Another package registers a metric with an entry point of the group `brokerbed.metrics`, whose name is the metric's and
whose value leads to its Definition.
"""

from collections.abc import Iterable

from brokerbed.analysis.metrics import delays, delivery, links, moves, tables
from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import Metric
from brokerbed.registry import Registry

DEFINITIONS: Registry[Definition] = Registry(
    lambda: (
        *tables.DEFINITIONS,
        *links.DEFINITIONS,
        *delays.DEFINITIONS,
        *delivery.DEFINITIONS,
        *moves.DEFINITIONS,
    ),
    "brokerbed.metrics",
)


def definitions() -> Iterable[Definition]:
    """In the order in which rows are shown; those of other packages come last, by name."""
    return DEFINITIONS.all.values()


def metrics() -> dict[str, Metric]:
    """By name, in the same order."""
    return {name: definition.metric for name, definition in DEFINITIONS.all.items()}
