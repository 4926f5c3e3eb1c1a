"""Table sizes and message rates of covering-based hierarchical routing on any rooted tree.

Paper: van Vliet, "Content-based routing in publish/subscribe systems with dynamic clients behaviour", University of
Twente 2007, eq. 2.47 and 2.48, with the term that 2.48 lacks: when a cover leaves, what it covered must be announced.
Notation for one link: P and c of the child's side, as in hierarchical.py; G is a filter, F its strict covers.

    entries               (1 - P_G) prod P_F
    control               2 c_G prod P_F + sum over F of c_F (prod of the other covers' P) (1 - P_G)
    notifications down    W_U (1 - prod of P over all filters that match)

A covered entry is dropped without a message when its cover is announced. When the cover is withdrawn, the filter is
announced again.

Assumptions: those of hierarchical.py. The strict covers of a filter are `prefix/+`, to which subscriptions come and go,
and filters whose subscriptions never end; of the latter only whether there is one below the link matters.
"""

from brokerbed.analysis.models.contract import Classes, Model, Traffic
from brokerbed.analysis.models.sides import Side, Sides
from brokerbed.scenario.topology import Floats, Tree


def covering(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """A filter travels up a link only while nothing below the link covers it."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    return sides.traffic(
        up=below.published,
        down=above.published * below.reached,
        additional=below.published * below.unreached,
        entries_up=uncovered_entries(below),
        control_up=uncovered_control(below),
        refresh_s=refresh_s,
    )


def uncovered_entries(below: Side) -> Floats:
    return below.present * below.wide_absent * below.uncovered


def uncovered_control(below: Side) -> Floats:
    own = below.toggling * below.wide_absent
    again = below.wide_disappearing * below.present  # announced because the cover is withdrawn
    return (own + again) * below.uncovered


COVERING = Model("covering", "Filters are passed on unless a wanted filter covers them (van Vliet 2007).", covering)
