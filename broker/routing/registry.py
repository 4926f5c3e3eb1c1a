"""The routing algorithms by name: those in this folder and those of other packages.

Another package registers an algorithm as an entry point of the group `brokerbed.routing`. The entry point has the name
of the algorithm and refers to its Algorithm.
"""

from brokerbed.broker.routing import flooding, identity, simple
from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.registry import Registry

ALGORITHMS: Registry[Algorithm] = Registry(
    lambda: (flooding.ALGORITHM, simple.ALGORITHM, identity.ALGORITHM), "brokerbed.routing"
)
DEFAULT = identity.ALGORITHM.name
