"""The rows that predictions and measurements are made of, and what a run needs of a prediction while it goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

HEADLINE_TOTALS = (
    "table.remote_entries",
    "table.local_entries",
    "rate.notifications",
    "rate.notifications.additional",
    "rate.control",
    "rate.total",
)
HEADLINE_PER_PAIR = ("delay.end_to_end", "delivery.ratio")  # of a publisher and a subscriber
UNITS = {"table": "1", "rate": "1/s", "delay": "s", "delivery": "1"}


@dataclass(frozen=True, slots=True)
class Row:
    metric: str
    labels: dict[str, str]
    predicted: float | None  # None where theory has no value: an unstable queue, or no model

    @property
    def unit(self) -> str:
        return UNITS[self.metric.split(".")[0]]

    @property
    def is_headline(self) -> bool:
        return not self.labels or self.metric in HEADLINE_PER_PAIR


class Expectation(Protocol):
    """What theory expects of a scenario, as far as a run needs to know: live page, Prometheus, expected duration."""

    @property
    def rows(self) -> Sequence[Row]: ...

    def waiting_messages(self) -> Mapping[str, float]:
        """How many messages wait at each broker for its subscribers, on average, where that is known."""
        ...
