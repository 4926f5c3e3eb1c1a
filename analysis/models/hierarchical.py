"""Table sizes and message rates of flooding, simple and identity-based hierarchical routing on any rooted tree.

Paper: Mühl, Schröter, Parzyjegl, Kounev, Richling, "Stochastic Analysis of Hierarchical Publish/Subscribe Systems",
Euro-Par 2009. Equation numbers below are the paper's. Refresh after Jaeger and Mühl, MASCOTS 2005.

Assumptions: per broker and class, subscriptions arrive in a Poisson stream and stay for independent lifetimes of any
law (only the mean matters: M/G/infinity); all arrivals and lifetimes are independent; the network is in equilibrium and
has no delays. Subscriptions that never end are allowed (the broker then wants the class with certainty).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from brokerbed.scenario.topology import Floats, Tree


@dataclass(frozen=True)
class Classes:
    """Filter classes as columns; a column stands for `multiplicity` identical classes.

    All arrays except `multiplicity` have the dimensions broker, in the order of the tree, and column.
    """

    multiplicity: Floats
    arrival_rate: Floats  # lambda: subscriptions that come and go, arrivals per second
    mean_active: Floats  # lambda / mu
    permanent: Floats  # subscriptions to exactly this class that never end
    wanted_anyway: Floats  # 1 where a permanent subscription to a wildcard filter also matches this class
    publication_rate: Floats  # omega, notifications per second


@dataclass(frozen=True)
class Traffic:
    """Expected values per broker v, summed over classes. The link of v is the one to its parent; the root has none."""

    remote_entries: Floats  # at v's parent, pointing at v
    local_entries: Floats
    notifications_in: Floats  # notifications per second that reach v, from its clients and its neighbours
    up: Floats  # notifications per second on the link of v, towards the root
    down: Floats  # ... and away from it
    additional: Floats  # those of `up` below which nobody subscribes
    control: Floats  # (un)subscriptions per second on the link of v

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def times(self, factor: float) -> "Traffic":
        return Traffic(*(getattr(self, field.name) * factor for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a routing algorithm."""

    name: str  # of the algorithm
    summary: str  # one line of documentation: whose model it is
    traffic: Callable[[Tree, Classes, float | None], Traffic]  # the last argument: seconds between refreshes


def no_traffic(tree: Tree) -> Traffic:
    return Traffic(*(np.zeros(len(tree)) for _ in fields(Traffic)))


def identity(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """A subscription travels up a link only if its class is new there (eq. 1 to 10)."""
    subtrees = _Subtrees(tree, classes)
    remote_entries = subtrees.wanted
    control = 2 * subtrees.arrival_rate * subtrees.unwanted  # eq. 9
    if refresh_s is not None:
        control = control + remote_entries / refresh_s
    return subtrees.traffic(remote_entries, control)


def simple(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Every subscription travels to the root and is stored on the way; notifications as with identity (eq. 14)."""
    subtrees = _Subtrees(tree, classes)
    remote_entries = subtrees.local_entries
    control = 2 * subtrees.arrival_rate
    if refresh_s is not None:
        control = control + remote_entries / refresh_s
    return subtrees.traffic(remote_entries, control)


def flooding(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Every notification crosses every link once; nothing is stored, nothing is refreshed (eq. 11)."""
    del refresh_s
    subtrees = _Subtrees(tree, classes)
    nothing = np.zeros_like(subtrees.arrival_rate)
    everything = np.ones_like(subtrees.arrival_rate)
    return subtrees.traffic(nothing, nothing, passed_down=everything, unwanted=nothing)


class _Subtrees:
    """Sums and products over the subtree below each link, computed in one pass over the tree."""

    def __init__(self, tree: Tree, classes: Classes) -> None:
        certain = np.where(classes.permanent > 0, np.inf, 0.0)
        own_interest = classes.mean_active + certain  # p0 = exp(-own_interest), eq. 1
        any_interest = own_interest + np.where(classes.wanted_anyway > 0, np.inf, 0.0)
        locals_ = classes.mean_active + classes.permanent
        parts = (own_interest, any_interest, classes.arrival_rate, locals_, classes.publication_rate)
        sums = np.split(tree.subtree_sums(np.hstack(parts)), len(parts), axis=1)
        self._multiplicity = classes.multiplicity
        self._locals = locals_
        self.unwanted = np.exp(-sums[0])  # P0: no entry for this class below, eq. 3
        self.wanted = -np.expm1(-sums[0])
        self._reached = -np.expm1(-sums[1])  # the probability of an entry below that matches it
        self._unreached = np.exp(-sums[1])
        self.arrival_rate = sums[2]  # eq. 8
        self.local_entries = sums[3]
        self._published = sums[4]

    def traffic(
        self, remote_entries: Floats, control: Floats, passed_down: Floats | None = None, unwanted: Floats | None = None
    ) -> Traffic:
        """Notifications go up to the root, and down where they are wanted, but never back to where they came from."""
        passed_down = self._reached if passed_down is None else passed_down
        unwanted = self._unreached if unwanted is None else unwanted
        down = (self._published[0] - self._published) * passed_down  # 0 at the root: everything is published below it
        return Traffic(
            remote_entries=self._per_link(remote_entries),
            local_entries=self._locals @ self._multiplicity,
            notifications_in=(self._published + down) @ self._multiplicity,
            up=self._per_link(self._published),
            down=self._per_link(down),
            additional=self._per_link(self._published * unwanted),  # eq. 7, regrouped by link
            control=self._per_link(control),
        )

    def _per_link(self, values: Floats) -> Floats:
        """The sum over classes for each link; the root has no link."""
        sums: Floats = values @ self._multiplicity
        sums[0] = 0.0
        return sums


FLOODING = Model("flooding", "Every notification crosses every link (Mühl et al. 2009).", flooding)
SIMPLE = Model("simple", "Every subscription is stored on its way to the root (Mühl et al. 2009).", simple)
IDENTITY = Model("identity", "Equal filters are passed on once (Mühl et al. 2009).", identity)
