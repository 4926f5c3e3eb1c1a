"""Table sizes and message rates of merging-based hierarchical routing on any rooted tree.

Merging after Mühl, Fiege, Pietzuch, "Distributed Event-Based Systems", 2006: covering, and where at least
`threshold` = k wanted filters differ only in their last level, `prefix/+` is announced in their place. Notation for one
link, per group of narrow filters i with the wide filter w = `prefix/+`; P and c of the child's side as in
hierarchical.py, N the number of wanted narrow filters (Poisson-binomial with 1 - P_i), N_i the same without i. The
wide filter is active if it is wanted or N >= k.

    entries               P(active) + P_w E[N; N < k]
    control               c_w (2 P(N < k) + E[N; N < k])
                          + sum over i of c_i P_w ((k + 1) P(N_i = k - 1) + 2 P(N_i < k - 1))
    notifications down    W_U (1 - P_i P_w P(N_i < k)), of which unwanted: W_U P_i P_w P(N_i >= k)

When the group becomes active, the wide filter takes one message and the narrow entries are dropped without any. When it
becomes inactive, the narrow filters are announced and the wide one is withdrawn. With the
rates of appearing and disappearing apart: c_w appearing counts P(N < k), disappearing P(N < k) + E[N; N < k]; c_i
appearing counts P(N_i < k), disappearing k P(N_i = k - 1) + P(N_i < k - 1).

Assumptions: those of covering.py. A filter whose subscriptions never end and which covers the narrow filters of a group
must cover all of them: another workload is not predicted.
"""

from typing import NamedTuple

import numpy as np

from brokerbed.analysis.models.contract import Classes, Group, Model, NotPredictedError, Traffic
from brokerbed.analysis.models.covering import uncovered_control, uncovered_entries
from brokerbed.analysis.models.sides import Side, Sides
from brokerbed.scenario.topology import Floats, Tree

CELLS_MAX = 4_000_000  # links x narrow filters x threshold processed at a time: a few arrays of 32 MB


def merging(tree: Tree, classes: Classes, refresh_s: float | None, threshold: int) -> Traffic:
    """Filters that differ only in their last level are announced as one, if at least `threshold` are wanted."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    entries, control = uncovered_entries(below), uncovered_control(below)
    merged = np.zeros_like(below.published)  # the probability that a topic goes down only because filters were merged
    for group in classes.groups:
        _check_covers(classes, group)
        k = min(threshold, int(group.counts.sum()) + 1)  # a threshold that is never reached
        rows = max(1, CELLS_MAX // (max(1, len(group.members)) * (k + 1)))
        for first in range(0, len(tree), rows):
            _merge(group, below, k, slice(first, first + rows), (entries, control, merged))
    return sides.traffic(
        up=below.published,
        down=above.published * (below.reached + merged),
        additional=below.published * below.unreached,
        unwanted=above.published * merged,
        entries_up=entries,
        control_up=control,
        refresh_s=refresh_s,
    )


def _check_covers(classes: Classes, group: Group) -> None:
    of_all = classes.wanted_anyway[:, group.wide] + classes.permanent[:, group.wide] > 0
    if ((classes.wanted_anyway[:, group.members] > 0) != of_all[:, None]).any():
        raise NotPredictedError("merging where a filter covers some filters of a group, but not all of them")


def _merge(group: Group, below: Side, k: int, part: slice, results: tuple[Floats, Floats, Floats]) -> None:
    """Writes the rows `part` of one group. What belongs to the group as a whole is written to its wide column."""
    entries, control, merged = results
    members, wide, counts = group.members, group.wide, group.counts
    wide_absent, uncovered = below.absent[part, wide], below.uncovered[part, wide]
    absent, present = below.absent[part, members], below.present[part, members]
    wanted, others = _numbers_wanted(absent, present, counts.tolist(), k)
    few = wanted[:, :k].sum(axis=1)  # P(N < k)
    mean = wanted[:, :k] @ np.arange(k)  # E[N; N < k]
    entries[part, members] = control[part, members] = 0.0
    is_active = below.present[part, wide] + wide_absent * wanted[:, k]
    entries[part, wide] = uncovered * (is_active + wide_absent * mean)
    up, down = below.appearing, below.disappearing
    of_wide = up[part, wide] * few + down[part, wide] * (few + mean)
    changed = others.one_less + others.fewer  # one message for what appears, at most one for what disappears, and ...
    toggles = up[part, members] * changed + down[part, members] * (changed + (k - 1) * others.one_less)
    control[part, wide] = uncovered * (of_wide + wide_absent * (toggles @ counts.astype(float)))
    merged[part, members] = absent * (wide_absent * uncovered)[:, None] * others.enough


class _Others(NamedTuple):
    """Probabilities of N_i, per link and column of narrow filters."""

    fewer: Floats  # N_i < k - 1
    one_less: Floats  # N_i = k - 1
    enough: Floats  # N_i >= k


def _numbers_wanted(absent: Floats, present: Floats, counts: list[int], k: int) -> tuple[Floats, _Others]:
    """The distribution of N and those of all N_i, from products over the columns before and after each column."""
    factors = [_binomial(absent[:, j], present[:, j], count, k) for j, count in enumerate(counts)]
    nothing = np.zeros((len(absent), k + 1))
    nothing[:, 0] = 1.0
    after = [nothing]  # of the last column, of the last two, ...
    for factor, count in zip(reversed(factors), reversed(counts), strict=True):
        after.append(_product(after[-1], factor, count))
    others = _Others(*(np.empty_like(absent) for _ in _Others._fields))
    before = nothing
    for j, (factor, count) in enumerate(zip(factors, counts, strict=True)):
        following, same = after[len(factors) - 1 - j], before
        if count > 1:  # the other filters of the same column
            same = _product(before, _binomial(absent[:, j], present[:, j], count - 1, k), count - 1)
        at_most, at_least = np.cumsum(following[:, :k], axis=1), _at_least(following)
        others.one_less[:, j] = (same[:, :k] * following[:, :k][:, ::-1]).sum(axis=1)
        others.fewer[:, j] = (same[:, : k - 1] * at_most[:, : k - 1][:, ::-1]).sum(axis=1)
        others.enough[:, j] = same[:, k] + (same[:, :k] * at_least[:, :0:-1]).sum(axis=1)
        before = _product(before, factor, count)
    return before, others


def _binomial(absent: Floats, present: Floats, count: int, k: int) -> Floats:
    """P(n of `count` equal filters are wanted) for n < k, and P(at least k) in the last place."""
    from scipy.special import bdtrc, gammaln, xlogy  # other models do without it, and it takes a while to import

    n = np.arange(min(count, k - 1) + 1)
    choices = gammaln(count + 1) - gammaln(n + 1) - gammaln(count - n + 1)
    result = np.zeros((len(absent), k + 1))
    result[:, : len(n)] = np.exp(choices + xlogy(n, present[:, None]) + xlogy(count - n, absent[:, None]))
    if count >= k:
        result[:, k] = bdtrc(k - 1, count, present)
    return result


def _product(numbers: Floats, factor: Floats, count: int) -> Floats:
    """The distribution of a sum of two independent numbers, of which the second is at most `count`.

    There are only additions, so that what is impossible has exactly the probability 0.
    """
    k = numbers.shape[1] - 1
    at_least = _at_least(numbers)
    result = np.zeros_like(numbers)
    result[:, k] = factor[:, k]
    for n in range(min(count, k - 1) + 1):
        result[:, n:k] += factor[:, n, None] * numbers[:, : k - n]
        result[:, k] += factor[:, n] * at_least[:, k - n]
    return result


def _at_least(numbers: Floats) -> Floats:
    sums: Floats = np.cumsum(numbers[:, ::-1], axis=1)[:, ::-1]
    return sums


MERGING = Model(
    "merging",
    "Filters that differ in the last level only are passed on as one (Mühl et al. 2006).",
    merging,
    uses_groups=True,
)
