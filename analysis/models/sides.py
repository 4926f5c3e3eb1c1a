"""The two sides of every link: what is wanted, published and advertised there, per column of the workload.

The routing models are formulas in these quantities. The side below a link is the subtree of its child; the side above
is the rest of the tree. Both are sums over brokers of rates and of logarithms of probabilities, by independence.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from brokerbed.analysis.models.contract import Classes, Traffic
from brokerbed.scenario.demand import SideInterest
from brokerbed.scenario.topology import Floats, Tree

_PARTS = 14  # arrays that are summed over brokers


@dataclass(frozen=True)
class Side:
    """Sums over the brokers of one side, for every link (its child's row) and column."""

    interest: Floats  # -ln P(no subscription to exactly this filter that comes and goes)
    appearing_odds: Floats  # how often such interest appears per second, divided by that probability
    disappearing_odds: Floats
    arrivals: Floats
    departures: Floats
    permanent: Floats
    covering: Floats  # subscriptions that never end and strictly cover this filter
    wide_interest: Floats  # as above, to `prefix/+` above this filter
    wide_disappearing_odds: Floats
    published: Floats  # W
    local_entries: Floats
    always_advertised: Floats
    source_rate: Floats
    source_log_odds: Floats

    def joined_by(self, others: SideInterest | None) -> "Side":
        """This side with further subscribers, who are independent of those that it has."""
        if others is None:
            return self
        return replace(
            self,
            interest=self.interest + _strength(others),
            appearing_odds=self.appearing_odds + others.appearing_odds,
            disappearing_odds=self.disappearing_odds + others.appearing_odds,
            arrivals=self.arrivals + others.crossing,
            departures=self.departures + others.crossing,
        )

    def covered_by(self, others: SideInterest | None) -> "Side":
        """The same, of subscribers to filters that strictly cover this one."""
        if others is None:
            return self
        return replace(
            self,
            wide_interest=self.wide_interest + _strength(others),
            wide_disappearing_odds=self.wide_disappearing_odds + others.appearing_odds,
        )

    def advertised_by(self, others: SideInterest | None) -> "Side":
        """The same, of advertisements that are now on one side and then on the other."""
        if others is None:
            return self
        return replace(
            self,
            source_rate=self.source_rate + others.appearing_odds,
            source_log_odds=self.source_log_odds + _strength(others),
        )

    @cached_property
    def absent(self) -> Floats:
        """P: nobody subscribes to exactly this filter (Mühl et al. 2009, eq. 3)."""
        return np.where(self.permanent > 0, 0.0, np.exp(-self.interest))

    @cached_property
    def present(self) -> Floats:
        """1 - P, exactly also where it is small."""
        return np.where(self.permanent > 0, 1.0, -np.expm1(-self.interest))

    @cached_property
    def appearing(self) -> Floats:
        """c: how often interest in exactly this filter appears (half of eq. 9)."""
        return self.appearing_odds * self.absent

    @cached_property
    def disappearing(self) -> Floats:
        """How often it disappears: as often as it appears, except at an instant of a time-varying workload."""
        return self.disappearing_odds * self.absent

    @cached_property
    def toggling(self) -> Floats:
        """How often it appears or disappears."""
        return self.appearing + self.disappearing

    @cached_property
    def uncovered(self) -> Floats:
        """1 where no subscription that never ends covers this filter, else 0."""
        return np.where(self.covering > 0, 0.0, 1.0)

    @cached_property
    def wide_absent(self) -> Floats:
        """The probability that no subscription to `prefix/+` that comes and goes covers this filter."""
        return np.exp(-self.wide_interest)

    @cached_property
    def wide_disappearing(self) -> Floats:
        return self.wide_disappearing_odds * self.wide_absent

    @cached_property
    def unreached(self) -> Floats:
        """The probability that no subscription matches this topic."""
        is_certain = self.permanent + self.covering > 0
        return np.where(is_certain, 0.0, np.exp(-self.interest - self.wide_interest))

    @cached_property
    def reached(self) -> Floats:
        is_certain = self.permanent + self.covering > 0
        return np.where(is_certain, 1.0, -np.expm1(-self.interest - self.wide_interest))

    @cached_property
    def silent(self) -> Floats:
        """Q: nobody advertises a topic that this filter matches."""
        return np.where(self.always_advertised > 0, 0.0, np.exp(-self.source_log_odds))

    @cached_property
    def advertised(self) -> Floats:
        return np.where(self.always_advertised > 0, 1.0, -np.expm1(-self.source_log_odds))

    @cached_property
    def advertising(self) -> Floats:
        """a: how often the first such advertisement appears, and as often the last one disappears."""
        return self.source_rate * self.silent


def _strength(others: SideInterest) -> Floats:
    with np.errstate(divide="ignore"):  # interest that is never absent
        strength: Floats = -np.log(others.absent)
    return strength


class Sides:
    """Both sides of all links of a tree, and the sums over columns."""

    def __init__(self, tree: Tree, classes: Classes) -> None:
        own, wide, advertisers = classes.own, classes.wide_interest, classes.all_advertisers
        self._tree = tree
        self._multiplicity = classes.multiplicity
        self._published = classes.publication_rate
        self._locals = own.mean_active + classes.permanent
        self.is_topic = advertisers.is_topic.astype(float)
        parts = (
            own.strength, own.appearing, own.disappearing, own.arrivals, own.departures, classes.permanent,
            classes.wanted_anyway, wide.strength, wide.disappearing, classes.publication_rate,
            self._locals, advertisers.always, advertisers.appearing_rate, advertisers.log_odds,
        )  # fmt: skip
        assert len(parts) == _PARTS
        below, above = tree.sums_inside_and_outside(np.hstack(parts))
        nobody = None, None
        covers, sources = classes.roaming_covers or nobody, advertisers.roaming or nobody
        self.below, self.above = (
            Side(*np.split(sums, _PARTS, axis=1)).joined_by(others).covered_by(cover).advertised_by(source)
            for sums, others, cover, source in zip(
                (below, above), (classes.below, classes.above), covers, sources, strict=True
            )
        )

    def per_link(self, values: Floats) -> Floats:
        """The sum over columns for each link; the root has no link."""
        sums: Floats = values @ self._multiplicity
        sums[0] = 0.0
        return sums

    def traffic(
        self, *, up: Floats, down: Floats, entries_up: Floats, control_up: Floats, additional: Floats | None = None,
        unwanted: Floats | None = None, entries_down: Floats | None = None, control_down: Floats | None = None,
        advertisements_up: Floats | None = None, advertisements_down: Floats | None = None,
        refresh_s: float | None = None,
    ) -> Traffic:  # fmt: skip
        """Totals per link. `_up` is what the child announces to its parent, and what the parent then stores; all that
        is stored is announced again at every refresh."""

        def total(values: Floats | None) -> Floats:
            return (
                np.zeros((len(self._tree), *self._multiplicity.shape[1:])) if values is None else self.per_link(values)
            )

        for_child, for_parent = total(entries_up), total(entries_down)
        of_child, of_parent = total(advertisements_up), total(advertisements_down)
        sent_up, sent_down = total(control_up), total(control_down)
        if refresh_s is not None:
            sent_up = sent_up + (for_child + of_child) / refresh_s
            sent_down = sent_down + (for_parent + of_parent) / refresh_s
        upwards, downwards = total(up), total(down)
        own = self._published @ self._multiplicity
        return Traffic(
            entries_for_child=for_child,
            entries_for_parent=for_parent,
            advertisements_of_child=of_child,
            advertisements_of_parent=of_parent,
            local_entries=self._locals @ self._multiplicity,
            notifications_in=own + self._tree.children_sums(upwards) + downwards,
            up=upwards,
            down=downwards,
            additional=total(additional),
            unwanted=total(unwanted),
            control_up=sent_up,
            control_down=sent_down,
        )
