"""The scenario that `brokerbed new` writes: its text, and how long it has to run for its tolerance. Pure.

The scenario has pairs of a publisher and a subscriber, as copies of one pair. Its length follows from the variances of
the models: measured values scatter with a standard error that shrinks with the square root of the time, and they can be
judged when the tolerance is MARGIN standard errors (half an interval takes two, the measured value may be off by two,
and intervals are wider than that where batches are few).
"""

from dataclasses import dataclass

from brokerbed.scenario.topology import Tree, levels, line, regular, star

MARGIN = 5.0  # standard errors
ON_S, OFF_S = 30.0, 20.0  # mean periods of clients that go offline
CYCLE_S = ON_S + OFF_S
CYCLES_MIN = 10.0
MEASURE_S_MIN = 60.0
SERVICE_S_MAX = 0.05
UTILISATION = 0.1  # of the queues of a pair, so that they have little memory
BATCHES = 32  # of which intervals are made
DELAY_TOLERANCES = 2.0  # delays scatter more than rates: a tolerance for them is as many times larger
TOLERANCE_MAX = 0.45  # so that the tolerance of delays is still below 100%
STEP = 1.02
TREES = ("levels", "line", "star", "regular")
OFFLINE = ("nobody", "publishers", "subscribers", "both")


@dataclass(frozen=True, slots=True)
class Draft:
    """What a user has chosen."""

    name: str
    tree: str
    brokers: int
    clients: int  # pairs of a publisher and a subscriber
    rate_per_s: float  # of each publisher
    offline: str
    tolerance: float

    @property
    def service_s(self) -> float:
        return min(SERVICE_S_MAX, UTILISATION / self.rate_per_s)

    @property
    def publishers_go(self) -> bool:
        return self.offline in ("publishers", "both")

    @property
    def subscribers_go(self) -> bool:
        return self.offline in ("subscribers", "both")

    @property
    def goes(self) -> bool:
        return self.offline != "nobody"

    @property
    def ends(self) -> tuple[str, str]:
        """The brokers of a pair: two leaves that are far from one another, if there are two."""
        tree = self._built()
        parents = set(tree.parents.tolist())
        leaves = [name for place, name in enumerate(tree.names) if place not in parents]
        return leaves[0], leaves[-1] if len(leaves) > 1 else tree.names[0]

    @property
    def measure_s(self) -> float:
        """Rounded to two digits, upwards."""
        seconds = CYCLES_MIN * CYCLE_S if self.goes else MEASURE_S_MIN
        while self._is_short(seconds):
            seconds *= STEP
        unit = 10.0 ** (len(str(int(seconds))) - 2)
        return float(-(-seconds // unit) * unit)

    def _is_short(self, seconds: float) -> bool:
        is_short = self._rate_error(seconds) > self.tolerance / MARGIN
        return is_short or self._delay_error(seconds) > DELAY_TOLERANCES * self.tolerance / MARGIN

    def _rate_error(self, seconds: float) -> float:
        """Relative standard error of the number of messages, as it is estimated from batches.

        Messages are Poisson events. What waits in an offline publisher moves from one batch to the next.
        """
        messages = self.rate_per_s * self.clients * seconds
        waiting_s2 = _moment(3) / 3 / CYCLE_S if self.publishers_go else 0.0
        moved = 2 * BATCHES * self.clients * self.rate_per_s**2 * waiting_s2
        return float((messages + moved) ** 0.5 / messages)

    def _delay_error(self, seconds: float) -> float:
        """Relative standard error of the mean delay: that of both ends, which are independent, and of the queues."""
        queues = 3 * (self.service_s / (1 - UTILISATION)) ** 2 * (1 + UTILISATION) / (1 - UTILISATION)
        variance = queues / self.rate_per_s  # of the mean over one second
        mean = 3 * self.service_s / (1 - UTILISATION)
        for goes, together in (
            (self.publishers_go, 1.0),
            (self.subscribers_go, 1.0 + self.rate_per_s * OFF_S if self.publishers_go else 1.0),
        ):
            if goes:
                variance += _waiting_variance(self.rate_per_s, together)
                mean += _waiting_mean()
        return float((variance / (self.clients * seconds)) ** 0.5 / mean)

    def _built(self) -> Tree:
        if self.tree == "levels":
            return levels(self.brokers, self.brokers)
        if self.tree == "regular":
            return regular(2, self.depth)
        return line(self.brokers) if self.tree == "line" else star(self.brokers)

    @property
    def depth(self) -> int:
        """The levels of a regular tree, in which brokers have two children."""
        return self.brokers.bit_length()

    @property
    def is_full(self) -> bool:
        """Whether a regular tree can have so many brokers."""
        return self.brokers + 1 == 1 << self.depth

    @property
    def _topology(self) -> str:
        if self.tree == "regular":
            return f"{{tree: regular, arity: 2, depth: {self.depth}}}"
        width = f", width: {self.brokers}" if self.tree == "levels" else ""
        return f"{{tree: {self.tree}, brokers: {self.brokers}{width}}}"

    def text(self) -> str:
        """The scenario file."""
        first, last = self.ends
        service = f"{{mean: {self.service_s * 1e3:.6g}ms}}"
        periods = f", on: {{mean: {ON_S:g}s}}, off: {{mean: {OFF_S:g}s, law: uniform}}"
        publisher = periods if self.publishers_go else ""
        subscriber = periods if self.subscribers_go else ""
        warmup_s, speedup = (2 * CYCLE_S, 10) if self.goes else (10.0, 2)
        brokers = f"{self.brokers} brokers" if self.brokers > 1 else "one broker"
        pairs = f"{self.clients} publishers and {self.clients} subscribers" if self.clients > 1 else "a pair of clients"
        percent = 100 * self.tolerance
        tolerance = f"{{default: {percent:.6g}%, delay: {DELAY_TOLERANCES * percent:.6g}%}}"
        return TEXT.format(
            name=self.name, brokers=brokers, pairs=pairs, warmup_s=warmup_s, measure_s=self.measure_s,
            speedup=speedup, topology=self._topology, first=first, last=last,
            rate=f"{self.rate_per_s:.12g}", service=service, publisher=publisher, subscriber=subscriber,
            copies=self.clients, tolerance=tolerance, offline=_OFFLINE[self.offline],
        )  # fmt: skip


def _moment(power: int) -> float:
    """Of OFF periods, which are uniform on [0, 2 OFF_S]."""
    return float((2 * OFF_S) ** power / (power + 1))


def _waiting_mean() -> float:
    """The mean time that messages wait for a client to come back, over all messages."""
    return _moment(2) / 2 / CYCLE_S


def _waiting_variance(rate_per_s: float, together: float) -> float:
    """The variance of that mean, for one client that is watched for one second.

    A cycle has X = sum of delays and N messages; the variance of a ratio of means is that of X - R N. Given the OFF
    period, X - R N scatters as messages come at random, `together` at a time.
    """
    mean = _waiting_mean()
    squared = (_moment(4) - _moment(2) ** 2) / 4
    both = (_moment(3) - _moment(2) * OFF_S) / 2
    of_cycles = squared - 2 * mean * both + mean**2 * (_moment(2) - OFF_S**2 + ON_S**2)
    at_random = _moment(3) / 3 - mean * _moment(2) + mean**2 * CYCLE_S
    return float((of_cycles + together * at_random / rate_per_s) / CYCLE_S)


_OFFLINE = {
    "nobody": "All clients are always connected. `on: {mean: 30s}, off: {mean: 20s}` lets a client come and go.",
    "publishers": "Publishers come and go (on, off); what they publish meanwhile waits in them.",
    "subscribers": "Subscribers come and go (on, off); what comes meanwhile waits in their broker.",
    "both": "Clients come and go (on, off); messages wait in the publisher, or in the subscriber's broker.",
}

TEXT = """\
# {brokers}, {pairs}.
#
# `brokerbed predict` says what theory expects of this scenario, and `brokerbed run` runs it: with a process for each
# broker, or with `--on virtual` simulated, as fast as the processor allows. docs/scenario.md explains all keys.
scenario: 1
name: {name}
seed: 1

# Model time. `measure` is long enough for the tolerance below; after a change, a run says if it should be longer.
# On the local and docker grounds a second of wall time is `speedup` seconds of model time.
clock: {{warmup: {warmup_s:g}s, measure: {measure_s:g}s, speedup: {speedup}}}

# The brokers are b0 (the root), b1, ... Trees: levels (binary), line, star, regular, explicit.
topology: {topology}

# flooding | simple | identity | covering | merging | advertisement | peer | peer-advertisement
routing: identity

# One pair of clients; there are `copies` of it, each with a topic of its own. `service` is the time a message takes
# in the publisher, in the subscriber's queue at its broker, and in the subscriber.
# {offline}
publishers:
  - {{id: publisher, broker: {first}, topic: news, rate: {rate}/s, service: {service}{publisher}}}
subscribers:
  - {{id: subscriber, broker: {last}, topic: news, session_service: {service}, service: {service}{subscriber}}}
copies: {copies}

# How far measurements may be from predictions.
tolerance: {tolerance}

# What you might add: a workload of subscriptions that come and go, and faults.
# classes: 20
# subscriptions: {{mean_active: 40, lifetime: {{mean: 10s}}}}
# publications: {{rate: 20/s}}
# faults:
#   - {{at: 60s, crash: b0, for: 5s}}
"""
