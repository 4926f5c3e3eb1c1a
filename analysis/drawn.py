"""The interest of subscribers whose brokers are drawn at random, on both sides of every link."""

import numpy as np

from brokerbed.scenario.demand import SideInterest
from brokerbed.scenario.topology import Floats, Tree


def drawn_interest(
    tree: Tree, candidates: Floats, count: int, redraws_per_s: float
) -> tuple[SideInterest, SideInterest]:
    """Of `count` brokers, drawn for each column without replacement from those where `candidates` is 1.

    None of them is on a side with a hypergeometric probability h. Interest appears if a draw without any of them is
    followed by one with some: with rate h (1 - h) / (time between redraws), and it disappears as often. New subscribers
    come before old ones leave, so what both draws reach does not change.
    """
    everywhere = candidates.sum(axis=0)
    factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, int(everywhere.max()) + 1)))))

    def ways(brokers: Floats) -> Floats:
        """The logarithm of the number of ways to choose `count` of them."""
        total = np.rint(brokers).astype(np.int64)
        left = np.maximum(total - count, 0)
        logarithms: Floats = factorials[total] - factorials[left] - factorials[min(count, len(factorials) - 1)]
        return np.where(total < count, -np.inf, logarithms)

    def on_side(there: Floats) -> SideInterest:
        is_drawn = everywhere > 0
        absent = np.ones_like(there)
        absent[:, is_drawn] = np.exp(ways(everywhere[is_drawn] - there[:, is_drawn]) - ways(everywhere[is_drawn]))
        return SideInterest(absent, (1 - absent) * redraws_per_s)

    below, above = tree.sums_inside_and_outside(candidates)
    return on_side(below), on_side(above)
