"""What the models of message lifetimes have in common: the server that they describe, and what they find out about it.

The models are in exponential_lifetime.py and fixed_lifetime.py. Messages arrive at the server as a Poisson process, are
served in order of arrival, and die when their lifetime is over, whether they wait or are in service; a death in service
frees the server. Service, ON and OFF periods are exponential, and interrupted service resumes where it stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass

from brokerbed.scenario.topology import Floats


@dataclass(frozen=True, slots=True)
class Server:
    """A queue with one server, which is always ON if `off_s` is 0, and serves at once while ON if `demand_s` is 0."""

    rate_per_s: float
    demand_s: float
    on_s: float = 1.0
    off_s: float = 0.0

    @property
    def availability(self) -> float:
        return self.on_s / (self.on_s + self.off_s)

    @property
    def utilisation(self) -> float:
        """Messages that die make a server stable whose utilisation is 1 or more."""
        return self.rate_per_s * self.demand_s / self.availability


@dataclass(frozen=True, slots=True)
class Delivered:
    """What becomes of messages with a lifetime at a server."""

    ratio: float  # the share of messages that are served
    delay_s: float  # the mean time from arrival to the end of service, of the messages that are served
    longer: Callable[[Floats], Floats]  # the share of the messages served whose time is longer
