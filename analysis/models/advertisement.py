"""Table sizes and message rates of routing with advertisements: hierarchical as in JEDI, and among peers.

Papers: Bricconi, Di Nitto, Tracanella, "Issues in Analyzing the Behavior of Event Dispatching Systems", 2000 (JEDI);
van Vliet 2007 (see covering.py), eq. 2.44, with the term that it lacks: the live subscriptions that travel again when a
publisher returns. Notation for one link between the sides D and U, as in hierarchical.py: P, c and W; Q = P(nobody
there advertises) and a = the rate at which advertisements appear there. For a source that is always on Q = 0 and a = 0;
for sources with ON and OFF periods, gamma = 1 / (mean OFF time): Q = prod P(OFF), a = sum of gamma * Q.

    advertisement     entries   1 - P_D + (1 - Q_D)(1 - P_U)
                      control   2 c_D + 2 a_D + 2 (1 - Q_D) c_U + a_D (1 - P_U)
                      advertisements   1 - Q_D
    peer-advertisement entries  (1 - Q_U)(1 - P_D) + (1 - Q_D)(1 - P_U)
                      control   2 a_D + 2 a_U + 2 (1 - Q_U) c_D + a_U (1 - P_D) + 2 (1 - Q_D) c_U + a_D (1 - P_U)
                      advertisements   2 - Q_D - Q_U
    both              notifications as in peer.py

A withdrawn advertisement takes the entries that it called for with it, without messages.

Assumptions: those of hierarchical.py; whoever publishes has advertised it; ON and OFF periods have any law, and are
independent of one another and of the subscriptions. The sources of a filter with wildcards are those of all topics that
it matches.
"""

from brokerbed.analysis.models.contract import Classes, Model, Traffic
from brokerbed.analysis.models.sides import Side, Sides
from brokerbed.scenario.topology import Floats, Tree


def advertisement(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Interest climbs to the root; it goes down only where a topic is advertised below that it matches."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    return sides.traffic(
        up=below.published * above.reached,
        down=above.published * below.reached,
        entries_up=below.present,
        entries_down=_called_for(above, below),
        advertisements_up=below.advertised * sides.is_topic,
        control_up=below.toggling + 2 * below.advertising * sides.is_topic,
        control_down=_announced(above, below),
        refresh_s=refresh_s,
    )


def peer_advertisement(tree: Tree, classes: Classes, refresh_s: float | None) -> Traffic:
    """Advertisements go everywhere; interest goes only towards advertisements that it matches."""
    sides = Sides(tree, classes)
    below, above = sides.below, sides.above
    return sides.traffic(
        up=below.published * above.reached,
        down=above.published * below.reached,
        entries_up=_called_for(below, above),
        entries_down=_called_for(above, below),
        advertisements_up=below.advertised * sides.is_topic,
        advertisements_down=above.advertised * sides.is_topic,
        control_up=2 * below.advertising * sides.is_topic + _announced(below, above),
        control_down=2 * above.advertising * sides.is_topic + _announced(above, below),
        refresh_s=refresh_s,
    )


def _called_for(wanting: Side, advertising: Side) -> Floats:
    """Entries at the advertising side."""
    return advertising.advertised * wanting.present


def _announced(wanting: Side, advertising: Side) -> Floats:
    """Interest that changes while there is an advertisement, and interest that a new advertisement calls for."""
    return advertising.advertised * wanting.toggling + advertising.advertising * wanting.present


ADVERTISEMENT = Model(
    "advertisement",
    "Interest goes down only towards advertisements (Bricconi et al. 2000).",
    advertisement,
    uses_advertisements=True,
)
PEER_ADVERTISEMENT = Model(
    "peer-advertisement",
    "Interest goes only towards advertisements (van Vliet 2007).",
    peer_advertisement,
    uses_advertisements=True,
)
