"""Table sizes and message rates of peer-to-peer routing in a tree: no broker has a special role.

Routing in acyclic peer-to-peer topologies after Carzaniga, Rosenblum, Wolf, "Design and Evaluation of a Wide-Area Event
Notification Service", 2001 (subscription forwarding); the rates after van Vliet 2007, whose engine roots the tree at
each publisher. Notation for one link between the sides D and U, as in hierarchical.py:

    entries          2 - P_D - P_U
    control          2 c_D + 2 c_U
    notifications    W_D (1 - P_U) + W_U (1 - P_D)

Assumptions: those of hierarchical.py.
"""

from brokerbed.analysis.models.contract import Classes, Model, Traffic
from brokerbed.analysis.models.sides import Sides
from brokerbed.scenario.topology import Tree


def peer(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Both ends of a link know what is wanted at the other end, and notifications cross only where they are wanted."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    return sides.traffic(
        up=below.published * above.reached,
        down=above.published * below.reached,
        entries_up=below.present,
        entries_down=above.present,
        control_up=below.toggling,
        control_down=above.toggling,
        refresh_s=refresh_s,
    )


PEER = Model("peer", "Interest is known at both ends of every link (Carzaniga et al. 2001).", peer)
