"""The routing algorithms by name."""

from brokerbed.broker.routing.flooding import Flooding
from brokerbed.broker.routing.identity import Identity
from brokerbed.broker.routing.simple import Simple
from brokerbed.broker.routing.strategy import Strategy

STRATEGIES: dict[str, type[Strategy]] = {"flooding": Flooding, "simple": Simple, "identity": Identity}
