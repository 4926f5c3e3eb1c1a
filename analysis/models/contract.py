"""The contract of a model of routing: the workload that it is given, the traffic that it predicts, and its record.

A model knows the tree, the workload as columns, and the parameters of its algorithm. It knows no scenarios and no logs.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from brokerbed.scenario.demand import SideInterest
from brokerbed.scenario.topology import Floats, Tree


class NotPredictedError(Exception):
    """The model has no formula for this workload; the text says for what, and it is shown to the user."""


@dataclass(frozen=True)
class Interest:
    """Subscriptions that come and go, per broker and column. Brokers are independent of one another.

    Interest in a filter appears at a broker when its first subscription arrives, and disappears when its last one ends.
    In equilibrium both are equally frequent, and so are arrivals and departures. With time-varying rates, these are the
    values of an instant, and they differ.
    """

    strength: Floats  # -ln p, where p is the probability that nobody subscribes
    appearing: Floats  # how often interest appears per second, divided by p
    disappearing: Floats  # ... and disappears
    mean_active: Floats  # the mean number of subscriptions
    arrivals: Floats  # subscriptions that begin, per second
    departures: Floats  # ... and that end

    @classmethod
    def poisson(cls, arrivals: Floats, mean_active: Floats) -> "Interest":
        """Subscriptions that arrive in a Poisson process, in equilibrium: their number has a Poisson distribution."""
        return cls(mean_active, arrivals, arrivals, mean_active, arrivals, arrivals)

    @classmethod
    def none(cls, brokers: int, columns: int) -> "Interest":
        return cls(*(np.zeros((brokers, columns)) for _ in fields(cls)))


@dataclass(frozen=True)
class Advertisers:
    """Who advertises topics that a column's filter matches, per broker and column.

    The sources of a filter with wildcards are the sources of all topics that it matches; only topics are advertised.
    """

    always: Floats  # above 0 where an advertisement never ends
    appearing_rate: Floats  # gamma: the sum over sources of 1 / (mean OFF time)
    log_odds: Floats  # -ln P(all sources are OFF), the sum over sources of ln(1 + mean ON time / mean OFF time)
    is_topic: NDArray[np.bool_]  # per column: it is published to, and so advertised
    roaming: tuple[SideInterest, SideInterest] | None = None  # beside these: below each link, and above it


@dataclass(frozen=True)
class Group:
    """Filters that differ only in their last level, and the filter `prefix/+` that matches them all."""

    multiplicity: float  # the number of identical groups that this one stands for
    members: NDArray[np.int64]  # the columns of the narrow filters
    counts: NDArray[np.int64]  # how many of the narrow filters of one group each of these columns stands for
    wide: int  # the column of `prefix/+`, with or without subscriptions


@dataclass(frozen=True)
class Wire:
    """What the sizes of packets on links depend on, beside the brokers and the payload."""

    filter_bytes: Floats  # per column: the length of its filter, or the mean length of its filters
    publication_rates: tuple[Floats, Floats, Floats]  # by QoS; their sum is Classes.publication_rate


@dataclass(frozen=True)
class Classes:
    """Filter classes as columns; a column stands for `multiplicity` identical classes.

    All arrays except `multiplicity` have the dimensions broker, in the order of the tree, and column. A filter with
    wildcards has a column of its own, without publications.
    """

    multiplicity: Floats
    own: Interest  # in exactly this filter
    permanent: Floats  # subscriptions to exactly this filter that never end
    wanted_anyway: Floats  # 1 where a subscription that never ends has a filter that strictly covers this one
    publication_rate: Floats  # omega, notifications per second, averaged over the times when the source is OFF
    wide: Interest | None = None  # in the filter `prefix/+` that strictly covers this one
    advertisers: Advertisers | None = None  # None: whoever publishes advertises for ever
    groups: tuple[Group, ...] = ()  # for models that use them
    below: SideInterest | None = None  # of subscribers that are not independent, beside those in `own`: on both sides
    above: SideInterest | None = None  # of each link, per broker and column
    roaming_covers: tuple[SideInterest, SideInterest] | None = None  # of peers that roam, to filters that strictly
    # cover the column's: below each link, and above it
    wire: Wire | None = None  # models do not need it

    @property
    def wide_interest(self) -> Interest:
        return self.wide or Interest.none(*self.permanent.shape)

    @property
    def all_advertisers(self) -> Advertisers:
        nothing, everything = np.zeros_like(self.permanent), np.ones(len(self.multiplicity), dtype=bool)
        return self.advertisers or Advertisers(self.publication_rate, nothing, nothing, everything)


@dataclass(frozen=True)
class Traffic:
    """Expected values per broker v, summed over classes. The link of v is the one to its parent; the root has none."""

    entries_for_child: Floats  # routing entries at v's parent, pointing at v
    entries_for_parent: Floats  # ... and at v, pointing at its parent
    advertisements_of_child: Floats  # known at v's parent from v
    advertisements_of_parent: Floats  # ... and at v from its parent
    local_entries: Floats
    notifications_in: Floats  # notifications per second that reach v, from its clients and its neighbours
    up: Floats  # notifications per second on the link of v, towards the root
    down: Floats  # ... and away from it
    additional: Floats  # those of `up` below which nobody subscribes
    unwanted: Floats  # those of `down` below which nobody subscribes
    control_up: Floats  # (un)subscriptions and (un)advertisements per second that v sends to its parent
    control_down: Floats  # ... and that its parent sends to v

    @property
    def control(self) -> Floats:
        """In both directions."""
        return self.control_up + self.control_down

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def times(self, factor: float) -> "Traffic":
        return Traffic(*(getattr(self, field.name) * factor for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a routing algorithm."""

    name: str  # of the algorithm
    summary: str  # one line of documentation: whose model it is
    traffic: Callable[..., Traffic]
    # (tree, classes, seconds between refreshes or None, and the parameters of the algorithm by name); it may raise
    # NotPredictedError
    uses_groups: bool = False  # it needs Classes.groups
    uses_advertisements: bool = False  # it needs Classes.advertisers


def no_traffic(tree: Tree) -> Traffic:
    return Traffic(*(np.zeros(len(tree)) for _ in fields(Traffic)))
