"""Peer-to-peer routing with advertisements: subscriptions travel only towards publishers.

Advertisements go over all links. A filter is announced over a link only if it overlaps an advertisement from there. So
brokers store no entries for what nobody publishes.
"""

from brokerbed.broker.routing.advertising import Advertised
from brokerbed.broker.routing.strategy import Advertising, Algorithm, Neighbour


class PeerAdvertisement(Advertised):
    def _gets_advertisements(self, link: Neighbour) -> bool:
        del link
        return True

    def _gets_all_interest(self, link: Neighbour) -> bool:
        del link
        return False


ALGORITHM = Algorithm(
    "peer-advertisement",
    "Publishers advertise to all brokers, and subscriptions travel only towards them.",
    PeerAdvertisement,
    climbs=False,
    speaks_downward=True,
    lets_links_move=True,
    advertising=Advertising.EVERYWHERE,
)
