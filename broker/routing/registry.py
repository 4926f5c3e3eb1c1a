"""The routing algorithms by name."""

from broker.routing.flooding import Flooding
from broker.routing.identity import Identity
from broker.routing.simple import Simple
from broker.routing.strategy import Strategy

STRATEGIES: dict[str, type[Strategy]] = {"flooding": Flooding, "simple": Simple, "identity": Identity}
