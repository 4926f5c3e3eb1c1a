"""A server that is ON and OFF, for messages with exponential lifetimes: a level-dependent Markov chain, solved exactly.

The chain has the states (n, c): n messages are there, and the server is ON or OFF (c). With arrivals at rate l, service
at rate m while ON, ON periods that end at rate a, OFF periods that end at rate b, and deaths of each message at rate t:

    (n, c)   -> (n + 1, c)  l           (n, ON)  -> (n, OFF)  a
    (n, ON)  -> (n - 1, ON) m + n t     (n, OFF) -> (n, ON)   b
    (n, OFF) -> (n - 1, OFF) n t

Its stationary distribution p follows from p(n + 1) = p(n) R(n), where R(n) = l (D(n+1) - R(n+1) S(n+2))^-1 is computed
from the highest level down (D: what leaves a level, S: what leads to the level below). An arrival finds p, as arrivals
are Poisson. What becomes of it depends on the k messages ahead of it and on c alone. With x = 0 for the probability
u(k, c) that it is served, and x = s for the transform of its time if it is served:

    (k t + m [ON] + t + x + (a or b)) u(k, c) = (k t + m [ON]) u(k - 1, c) + (a or b) u(k, other c)

where u(-1, ON) = 1 stands for the end of its own service. Minus the derivative w of u at x = 0 is the mean time on the
event that it is served: the same equations, with u(k, c) added on the right. The mean delay of what is delivered is
sum p w / sum p u. (Little's law would give the mean over all messages, including those that die.)

Assumptions: those of server.py, and lifetimes that are exponential. No paper; the literature calls it a
queue with impatience until the end of service (Barrer 1957, Ancker and Gafarian 1963), in an environment.
"""

from functools import partial
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from brokerbed.analysis.models.distribution import Complexes, Times, share_longer
from brokerbed.analysis.models.server import Delivered, Server
from brokerbed.scenario.topology import Floats

LEVELS_MAX = 50_000  # the chain takes some 20 us per level
DEVIATIONS = 12  # how far beyond its mean a Poisson number can be; the share beyond is far below 1e-12
SPARE = 60  # levels more, for small means
GEOMETRIC = 40  # multiples of the mean beyond which a queue without deaths is longer with a probability of exp(-40)
NODES_MAX = 20_000  # values of the transform computed at a time


def exponential_lifetime(server: Server, lifetime_s: float) -> Delivered | None:
    """None if the queue would be too long to be computed."""
    if server.demand_s == 0:
        return _gate(server, 1 / lifetime_s)
    levels = _levels(server, lifetime_s)
    if levels > LEVELS_MAX:
        return None
    found = _stationary(server, 1 / lifetime_s, levels)
    walk = _Ahead(server, 1 / lifetime_s, found)
    ratio, unserved_s = walk.moments()
    times = Times(0.0, lambda s: walk.transform(s) / ratio)
    return Delivered(ratio, unserved_s / ratio, partial(share_longer, [times], 0.0))


def _levels(server: Server, lifetime_s: float) -> int:
    """A number of messages that is practically never exceeded: they are fewer than without service, or without deaths.

    Without service their number is Poisson; without deaths its tail is geometric in the long run.
    """
    unserved = server.rate_per_s * lifetime_s
    undying = inf
    if server.utilisation < 1:
        waiting_s = (1 - server.availability) * server.off_s
        mean_s = (waiting_s + server.demand_s / server.availability) / (1 - server.utilisation)
        undying = GEOMETRIC * server.rate_per_s * (mean_s + server.off_s)
    return ceil(min(unserved + DEVIATIONS * sqrt(unserved), undying, 10.0 * LEVELS_MAX)) + SPARE


def _rates(server: Server) -> tuple[float, float]:
    """At which ON and OFF periods end; a server without OFF periods never leaves ON."""
    return (1 / server.on_s, 1 / server.off_s) if server.off_s else (0.0, 1.0)


def _stationary(server: Server, death: float, levels: int) -> Floats:
    """The probabilities of n messages (rows) while ON and while OFF (columns)."""
    arriving, serving, (ending, returning) = server.rate_per_s, 1 / server.demand_s, _rates(server)
    switch = np.array([[-ending, ending], [returning, -returning]])
    factors = np.empty((levels, 2, 2))
    upward = np.zeros((2, 2))
    for n in range(levels, 0, -1):
        down = np.diag([serving + n * death, n * death])
        below = np.diag([serving + (n + 1) * death, (n + 1) * death])
        arrivals = arriving if n < levels else 0.0
        leaving = down + arrivals * np.eye(2) - switch - upward @ below
        upward = arriving * np.linalg.inv(leaving)
        factors[n - 1] = upward
    empty = switch - arriving * np.eye(2) + upward @ np.diag([serving + death, death])
    probabilities = np.empty((levels + 1, 2))
    probabilities[0] = _null_vector(empty)
    for n in range(levels):
        probabilities[n + 1] = probabilities[n] @ factors[n]
    found: Floats = probabilities / probabilities.sum()
    return found


def _null_vector(matrix: Floats) -> Floats:
    """The row vector x >= 0 with x matrix = 0, for a generator of two states."""
    vector = np.array([matrix[1, 0], matrix[0, 1]])
    normalised: Floats = vector / vector.sum()
    return normalised


class _Ahead:
    """The passage of one message through the states (messages ahead of it, ON or OFF)."""

    def __init__(self, server: Server, death: float, found: Floats) -> None:
        self._serving, self._death, self._found = 1 / server.demand_s, death, found
        self._ending, self._returning = _rates(server)

    def moments(self) -> tuple[float, float]:
        """The probability that a message is served, and its mean time on that event."""
        served, time_s = 0.0, 0.0
        u, w = (1.0, 0.0), (0.0, 0.0)  # while ON and OFF; (1, 0) stands for the end of service
        for ahead, (on, off) in enumerate(self._found.tolist()):
            u = self._step(ahead, 0.0, u, (0.0, 0.0))
            w = self._step(ahead, 0.0, w, u)
            served += on * u[0] + off * u[1]
            time_s += on * w[0] + off * w[1]
        return served, time_s

    def transform(self, s: Complexes) -> Complexes:
        """The transform of the time on the event that the message is served."""
        flat = s.reshape(-1)
        chunks = [self._transform(flat[at : at + NODES_MAX]) for at in range(0, len(flat), NODES_MAX)]
        return np.concatenate(chunks).reshape(s.shape)

    def _transform(self, s: Complexes) -> Complexes:
        total = np.zeros_like(s)
        u = np.ones_like(s), np.zeros_like(s)
        for ahead, (on, off) in enumerate(self._found[: self._relevant].tolist()):
            u = self._step(ahead, s, u, (0.0, 0.0))
            total += on * u[0] + off * u[1]
        return total

    @property
    def _relevant(self) -> int:
        """The number of levels that matter for the distribution."""
        beyond = np.cumsum(self._found[::-1].sum(1))[::-1]
        return int((beyond > 1e-13).sum())

    def _step(self, ahead: int, x: Any, before: tuple[Any, Any], added: tuple[Any, Any]) -> tuple[Any, Any]:
        """Solves the two equations of one level, for numbers or arrays."""
        passing_on, passing_off = self._serving + ahead * self._death, ahead * self._death
        leaving = self._death + x
        diagonal_on = passing_on + leaving + self._ending
        diagonal_off = passing_off + leaving + self._returning
        right_on = passing_on * before[0] + added[0]
        right_off = passing_off * before[1] + added[1]
        determinant = diagonal_on * diagonal_off - self._ending * self._returning
        return (
            (right_on * diagonal_off + self._ending * right_off) / determinant,
            (right_off * diagonal_on + self._returning * right_on) / determinant,
        )


def _gate(server: Server, death: float) -> Delivered:
    """Without service a message waits for the rest of an OFF period only, if it comes in one."""
    if server.off_s == 0:
        return Delivered(1.0, 0.0, lambda times_s: np.zeros(len(times_s)))
    returning = 1 / server.off_s
    late = (1 - server.availability) * returning / (returning + death)
    ratio = server.availability + late
    return Delivered(
        ratio,
        late / ratio / (returning + death),
        lambda times_s: late / ratio * np.exp(-(returning + death) * times_s),
    )
