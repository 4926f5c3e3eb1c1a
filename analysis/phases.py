"""The phases of a workload that varies over time: moments at which the models are evaluated, with their weights.

The models hold at each instant. Averages over a phase are Gauss and Legendre's sums over panels, whose limits are where
something jumps or bends: at the steps of a profile, and where lifetimes that began there end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from brokerbed.analysis.models.varying import Lifetime, Response, Variation, response
from brokerbed.metrics import PHASES
from brokerbed.scenario import Churn, Law, Scenario
from brokerbed.scenario.profile import Factor
from brokerbed.scenario.topology import Floats
from brokerbed.scenario.units import NS_PER_S

NODES = 400  # moments of a period, about; many panels have fewer moments each
NODES_OF_PANEL = (4, 16)  # at least, at most
LIMITS_MAX = 4_000  # of panels: beyond that, only the steps themselves are limits


@dataclass(frozen=True)
class Phase:
    """Moments of a part of the period."""

    weights: Floats  # of the moments; their sum is 1
    publications: Floats  # the factor of publication rates
    arrivals: Floats  # the factor of arrival rates of subscriptions
    responses: Mapping[Law, Response] = field(default_factory=dict)  # by lifetime; empty if arrival rates are constant


STEADY = Phase(np.ones(1), np.ones(1), np.ones(1))


def phases_of(scenario: Scenario) -> list[Phase]:
    """The phases of one period in their order; a single one if all rates are constant."""
    if scenario.period_ns is None:
        return [STEADY]
    profile, laws = scenario.subscriptions.profile, _laws(scenario)
    times_s, weights = _moments(scenario, laws)
    factors = [
        np.ones_like(times_s) if each is None else np.array([each.at(time_s * NS_PER_S) for time_s in times_s.flat])
        for each in (scenario.publications.profile, profile)
    ]
    publications, arrivals = (factor.reshape(times_s.shape) for factor in factors)
    responses = {}
    if profile is not None:
        variation = _variation(profile)
        levels = np.ones(times_s.size) if variation.amplitude else arrivals.ravel()
        for law in laws:
            responses[law] = response(variation, levels, _lifetime(law), times_s.ravel())
    which = np.minimum(times_s * PHASES * NS_PER_S / scenario.period_ns, PHASES - 1).astype(int)
    return [
        Phase(
            weights[is_here] / weights[is_here].sum(), publications[is_here], arrivals[is_here],
            {law: Response(it.active_s[is_here.ravel()], it.departures[is_here.ravel()])
             for law, it in responses.items()},
        )
        for is_here in (which == phase for phase in range(PHASES))
    ]  # fmt: skip


def _laws(scenario: Scenario) -> list[Law]:
    """The distinct laws of the lifetimes of subscriptions that arrive."""
    given = scenario.subscriptions
    churns = [it for it in (given.spread, given.wide, *given.overrides.values()) if isinstance(it, Churn)]
    return list(dict.fromkeys(churn.lifetime for churn in churns))


def _lifetime(law: Law) -> Lifetime:
    return Lifetime(law.law, law.mean_s, 1.0 if law.cv is None else law.cv)


def _variation(profile: Factor) -> Variation:
    jumps = [(time_ns / NS_PER_S, change) for time_ns, change in profile.jumps]
    return Variation(profile.period_ns / NS_PER_S, jumps, profile.amplitude)


def _moments(scenario: Scenario, laws: list[Law]) -> tuple[Floats, Floats]:
    """Times in one period, and their weights: panels, and moments of a panel."""
    assert scenario.period_ns is not None
    period_s = scenario.period_ns / NS_PER_S
    limits = np.unique(np.concatenate([np.linspace(0, period_s, PHASES + 1), [*_limits(scenario, laws, period_s)]]))
    limits = limits[np.concatenate([[True], np.diff(limits) > 1e-12 * period_s])]
    order = int(np.clip(NODES // len(limits), *NODES_OF_PANEL))
    nodes, weights = np.polynomial.legendre.leggauss(order)
    middles, halves = (limits[1:] + limits[:-1]) / 2, np.diff(limits) / 2
    return middles[:, None] + halves[:, None] * nodes, halves[:, None] * weights


def _limits(scenario: Scenario, laws: list[Law], period_s: float) -> Iterator[float]:
    jumps = [[time_ns / NS_PER_S for time_ns, _ in profile.jumps] for profile in scenario.profiles]
    yield from (time_s for times_s in jumps for time_s in times_s)
    if (profile := scenario.subscriptions.profile) is not None:
        breaks = {break_s for law in laws for break_s in _lifetime(law).breaks_s()}
        if len(profile.jumps) * len(breaks) <= LIMITS_MAX:
            yield from ((time_ns / NS_PER_S + break_s) % period_s for time_ns, _ in profile.jumps for break_s in breaks)
