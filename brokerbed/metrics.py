"""The vocabulary of metric rows: what each metric is called, which rows it has, and how people read it.

`analysis/metrics/` adds how a metric is predicted and measured, and lists the metrics of other packages. This module
knows nothing of models, logs or grounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

Labels = tuple[str, ...]  # the names of a row's labels
TOTAL: Labels = ()
PER_BROKER: Labels = ("broker",)
PER_LINK: Labels = ("link",)
PER_PAIR: Labels = ("publisher", "subscriber")
PER_EXCHANGE: Labels = ("requester", "responder")
PER_QUEUE: Labels = ("stage", "at")
PER_SUBSCRIBER: Labels = ("subscriber",)
PER_PHASE: Labels = ("phase",)  # of a total, if rates vary periodically
PHASES = 12  # of equal length, from "0" on
RECURSION = "recursion"  # the method of a prediction that was simulated, with a standard error
LABELS_MAX = 2  # the cells of the analysis have two columns for them


class Statistic(Enum):
    """What the measured value is; the analysis chooses the confidence interval accordingly."""

    RATE = "events per second"
    SIZE = "time average of a size"
    MEAN = "mean over observations"
    QUANTILE = "quantile of observations"
    SHARE = "share of observations"

    @property
    def is_over_time(self) -> bool:
        """Whether time during which nothing happened counts."""
        return self in (Statistic.RATE, Statistic.SIZE)


class Worse(Enum):
    """Which change of a metric is a regression."""

    MORE = "more"
    LESS = "less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. Its headline rows decide the verdict of a run; its detail rows are for information."""

    name: str
    summary: str  # one line of documentation, as in the table of README.md
    unit: str
    statistic: Statistic
    headline: Labels | None = None  # the labels of its headline rows; None if it has none
    detail: Labels | None = None  # the labels of its detail rows; None if it has none
    title: str  # of its figures and tables
    axis: str = ""  # what a figure writes at the axis of its values; only headline rows are drawn
    share: float | None = None  # of a quantile: the share of observations that are at most as large
    worse: Worse = Worse.MORE  # most metrics are costs or delays

    @property
    def gated(self) -> Labels | None:
        """The labels of the rows by which `gate` judges it; None if it has only rows per broker, link or queue."""
        if self.headline is not None:
            return self.headline
        return None if self.detail in (PER_BROKER, PER_LINK, PER_QUEUE) else self.detail

    def __post_init__(self) -> None:
        counts = [len(labels) for labels in (self.headline, self.detail) if labels is not None]
        assert counts, f"{self.name} has neither headline rows nor detail rows"
        assert max(counts) <= LABELS_MAX, f"{self.name} has more than {LABELS_MAX} labels"
        assert len(set(counts)) == len(counts), f"{self.name}: the number of labels must tell its rows apart"


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a metric and its prediction."""

    kind: Metric
    labels: dict[str, str]
    predicted: float | None  # None where theory has no value: an unstable queue, or no model
    standard_error: float | None = None  # of a prediction that the recursion made; formulas have none

    @property
    def metric(self) -> str:
        return self.kind.name

    @property
    def unit(self) -> str:
        return self.kind.unit

    @property
    def is_headline(self) -> bool:
        return tuple(self.labels) == self.kind.headline


def method_of(standard_error: float | None) -> dict[str, Any]:
    """How a prediction was made, as JSON says it: nothing for a formula."""
    return {} if standard_error is None else {"method": RECURSION, "standard_error": standard_error}


def labels_text(labels: Mapping[str, str]) -> str:
    """The broker, link, queue or pair that a row is about, as people read it; empty for a total."""
    if tuple(labels) == PER_PHASE:
        return f"phase {labels['phase']}"
    return (" -> " if tuple(labels) in (PER_PAIR, PER_EXCHANGE) else " ").join(labels.values())


class Expectation(Protocol):
    """What theory expects of a scenario, as far as a run needs to know: live page, Prometheus, expected duration."""

    @property
    def rows(self) -> Sequence[Row]: ...

    def waiting_messages(self) -> Mapping[str, float]:
        """How many messages wait at each broker for its subscribers, on average, where that is known."""
        ...


REMOTE_ENTRIES = Metric(
    name="table.remote_entries",
    summary="the average number of routing entries that point at neighbouring brokers",
    unit="1",
    statistic=Statistic.SIZE,
    headline=TOTAL,
    detail=PER_BROKER,
    title="Routing table sizes",
    axis="remote routing entries x_r",
)
LOCAL_ENTRIES = Metric(
    name="table.local_entries",
    summary="the average number of local subscriptions",
    unit="1",
    statistic=Statistic.SIZE,
    headline=TOTAL,
    detail=PER_BROKER,
    title="Local subscriptions",
    axis="local entries",
)
ADVERTISEMENTS = Metric(
    name="table.advertisements",
    summary="the average number of advertisements known from neighbouring brokers, if the routing uses them",
    unit="1",
    statistic=Statistic.SIZE,
    headline=TOTAL,
    detail=PER_BROKER,
    title="Advertisements",
    axis="advertisements known from links",
)
NOTIFICATIONS = Metric(
    name="rate.notifications",
    summary="notifications per second that cross links",
    unit="1/s",
    statistic=Statistic.RATE,
    headline=TOTAL,
    detail=PER_LINK,
    title="Notification rate",
    axis="notifications b_n + b_p, 1/s",
)
ADDITIONAL_NOTIFICATIONS = Metric(
    name="rate.notifications.additional",
    summary="those sent up a link below which nobody subscribes",
    unit="1/s",
    statistic=Statistic.RATE,
    headline=TOTAL,
    title="Additional notifications",
    axis="additional notifications b_p, 1/s",
)
UNWANTED_NOTIFICATIONS = Metric(
    name="rate.notifications.unwanted",
    summary="those sent down a link below which nobody subscribes to them, if the routing merges filters",
    unit="1/s",
    statistic=Statistic.RATE,
    headline=TOTAL,
    title="Unwanted notifications",
    axis="unwanted notifications, 1/s",
)
CONTROL_MESSAGES = Metric(
    name="rate.control",
    summary="(un)subscriptions and (un)advertisements per second that cross links, including refreshes",
    unit="1/s",
    statistic=Statistic.RATE,
    headline=TOTAL,
    detail=PER_LINK,
    title="Control message rate",
    axis="control messages b_c, 1/s",
)
ALL_MESSAGES = Metric(
    name="rate.total",
    summary="notifications and control messages together",
    unit="1/s",
    statistic=Statistic.RATE,
    headline=TOTAL,
    title="All messages",
    axis="messages over links, 1/s",
)
RECEIVED_NOTIFICATIONS = Metric(
    name="rate.received",
    summary="notifications per second that a broker receives, from clients and from other brokers",
    unit="1/s",
    statistic=Statistic.RATE,
    detail=PER_BROKER,
    title="Received notifications",
)
DELIVERED_MESSAGES = Metric(
    name="rate.delivered",
    summary="messages per second that brokers send to clients: the throughput, which `gate` compares",
    unit="1/s",
    statistic=Statistic.RATE,
    detail=TOTAL,
    title="Delivered messages",
    worse=Worse.LESS,
)
ROUTING_COST = Metric(
    name="cost.routing",
    summary="what the notifications cost per second, in links and brokers, if the scenario has `costs`",
    unit="1/s",
    statistic=Statistic.SIZE,
    headline=TOTAL,
    title="Cost of routing",
    axis="cost per second",
)
LINK_UTILISATION = Metric(
    name="link.utilisation",
    summary="the share of its bandwidth that a direction of a link uses, for links with a bandwidth",
    unit="1",
    statistic=Statistic.SIZE,
    detail=PER_LINK,
    title="Utilisation of links",
)
END_TO_END_DELAY = Metric(
    name="delay.end_to_end",
    summary="mean seconds from publishing to the end of processing, per publisher and subscriber",
    unit="s",
    statistic=Statistic.MEAN,
    headline=PER_PAIR,
    title="Response time",
    axis="mean response time, s",
)
DELAY_QUANTILES = tuple(
    Metric(
        name=f"delay.end_to_end.p{percent}",
        summary=f"the seconds that {percent}% of the messages take at most, per publisher and subscriber",
        unit="s",
        statistic=Statistic.QUANTILE,
        detail=PER_PAIR,
        title=f"Response time, {percent}% quantile",
        share=percent / 100,
    )
    for percent in (50, 95, 99)
)
ROUND_TRIP_DELAY = Metric(
    name="delay.round_trip",
    summary="mean seconds from making a request to the end of processing its answer, per requester and responder",
    unit="s",
    statistic=Statistic.MEAN,
    headline=PER_EXCHANGE,
    title="Round trip",
    axis="mean round trip, s",
)
STAGE_DELAY = Metric(
    name="delay.stage",
    summary="mean seconds in one queue",
    unit="s",
    statistic=Statistic.MEAN,
    detail=PER_QUEUE,
    title="Mean time in each queue",
)
MOVE_DELAY = Metric(
    name="delay.move",
    summary="mean seconds from the CONNECT of a subscriber that roams until all that waits for it is at its new broker",
    unit="s",
    statistic=Statistic.MEAN,
    detail=PER_SUBSCRIBER,
    title="Moves of sessions",
)
MOVED_MESSAGES = Metric(
    name="rate.moved",
    summary="messages per second that cross links because the session that they wait in follows its peer",
    unit="1/s",
    statistic=Statistic.RATE,
    detail=TOTAL,
    title="Moved messages",
)
DELIVERY_RATIO = Metric(
    name="delivery.ratio",
    summary="the share of messages published and due that was delivered",
    unit="1",
    statistic=Statistic.SHARE,
    headline=PER_PAIR,
    title="Delivery",
    axis="delivered / due",
    worse=Worse.LESS,
)
EXPIRED_MESSAGES = Metric(
    name="rate.expired",
    summary="messages per second that die in a queue because their time is over, of all copies of the peers",
    unit="1/s",
    statistic=Statistic.RATE,
    detail=PER_QUEUE,
    title="Expired messages",
)
ANSWERED_RATIO = Metric(
    name="delivery.answered",
    summary="the share of requests that were answered by the end of the run, per requester and responder",
    unit="1",
    statistic=Statistic.SHARE,
    detail=PER_EXCHANGE,
    title="Answered requests",
    worse=Worse.LESS,
)
