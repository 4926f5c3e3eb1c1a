"""The routing algorithms by name: those in this folder and those of other packages.

Another package registers an algorithm as an entry point of the group `brokerbed.routing`. The entry point has the name
of the algorithm and refers to its Algorithm.
"""

from brokerbed.broker.routing import (
    advertisement,
    covering,
    flooding,
    identity,
    merging,
    peer,
    peer_advertisement,
    simple,
)
from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.registry import Registry

_MODULES = (flooding, simple, identity, covering, merging, peer, advertisement, peer_advertisement)
ALGORITHMS: Registry[Algorithm] = Registry(lambda: [module.ALGORITHM for module in _MODULES], "brokerbed.routing")
DEFAULT = identity.ALGORITHM.name
