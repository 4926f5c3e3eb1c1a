"""Table sizes and message rates of flooding, simple and identity-based hierarchical routing on any rooted tree.

Paper: Mühl, Schröter, Parzyjegl, Kounev, Richling, "Stochastic Analysis of Hierarchical Publish/Subscribe Systems",
Euro-Par 2009. Equation numbers below are the paper's. Refresh after Jaeger and Mühl, MASCOTS 2005.

Assumptions: per broker and class, subscriptions arrive in a Poisson stream and stay for independent lifetimes of any
law (only the mean matters: M/G/infinity); all arrivals and lifetimes are independent; the network is in equilibrium and
has no delays. Subscriptions that never end are allowed (the broker then wants the class with certainty). Clients that
come and go enter through P and c, and simple routing's control through their arrivals. The formulas hold at each
instant of a time-varying workload, too; the rates at which interest appears and disappears, which are both c in
equilibrium, then differ.
"""

import numpy as np

from brokerbed.analysis.models.contract import Classes, Model, Traffic
from brokerbed.analysis.models.sides import Sides
from brokerbed.scenario.topology import Tree


def identity(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """A subscription travels up a link only if its class is new there (eq. 1 to 10)."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    return sides.traffic(
        up=below.published,
        down=above.published * below.reached,
        additional=below.published * below.unreached,  # eq. 7, regrouped by link
        entries_up=below.present,
        control_up=below.toggling,  # eq. 9
        refresh_s=refresh_s,
    )


def simple(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Every subscription travels to the root and is stored on the way; notifications as with identity (eq. 14)."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    return sides.traffic(
        up=below.published,
        down=above.published * below.reached,
        additional=below.published * below.unreached,
        entries_up=below.local_entries,
        control_up=below.arrivals + below.departures,
        refresh_s=refresh_s,
    )


def flooding(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Every notification crosses every link once; nothing is stored, nothing is refreshed (eq. 11)."""
    del refresh_s
    sides = Sides(tree, classes)
    nothing = np.zeros_like(sides.below.published)
    return sides.traffic(up=sides.below.published, down=sides.above.published, entries_up=nothing, control_up=nothing)


FLOODING = Model("flooding", "Every notification crosses every link (Mühl et al. 2009).", flooding)
SIMPLE = Model("simple", "Every subscription is stored on its way to the root (Mühl et al. 2009).", simple)
IDENTITY = Model("identity", "Equal filters are passed on once (Mühl et al. 2009).", identity)
