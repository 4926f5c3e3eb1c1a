"""Advertisement-based routing as in JEDI: notifications climb only where a broker above wants them.

Subscriptions and advertisements climb to the root. In addition, each broker announces to a child the interest of its
other sides, but only what overlaps an advertisement from there (Bricconi et al. 2000).
"""

from brokerbed.broker.routing.advertising import Advertised
from brokerbed.broker.routing.strategy import Advertising, Algorithm, Neighbour


class Advertisement(Advertised):
    def _gets_advertisements(self, link: Neighbour) -> bool:
        return link.is_parent

    def _gets_all_interest(self, link: Neighbour) -> bool:
        return link.is_parent


ALGORITHM = Algorithm(
    "advertisement",
    "Publishers advertise towards the root, and notifications climb only where a broker above wants them (JEDI).",
    Advertisement,
    climbs=False,
    speaks_downward=True,
    advertising=Advertising.UPWARD,
)
