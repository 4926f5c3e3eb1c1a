"""Mean delays on paths with several intermittent peers: sample paths with control variates.

Behind an ON/OFF centre messages come in bursts, so the formulas for the centres of a path, each with Poisson arrivals
(Algorithm 1 of Bouloukakis et al. 2017), are too low. Here the messages of all flows pass one stage after the other
(`sample_path.py`), in several rounds. Formulas take the place of simulation wherever they are exact, and give the
expectations of the control variates (`regression.py`):

- the first centres, whose mean is exact;
- every stage fed by a Poisson process, with the same service times and OFF periods;
- of every ON/OFF stage, the OFF time that messages meet, given how long their service takes;
- of every stage with exponential service, the time that it serves them, given how many messages they find.

If a cycle of ON and OFF has many messages, many cycles take long. Then messages are also simulated in groups that come
and are served as one: on the same random numbers the delay of groups goes up and down with that of single messages, and
its own mean is found over many more cycles at the same cost (multilevel Monte Carlo, Giles 2008).

Assumptions: independent times, exponential ON periods, at one stage recorded ones (two traces could stay in step for
ever), flows as in `stages.py`. What classes of subscriptions and other clients
send through a stage is a flow of its own at this stage, which leaves the network behind it. Where flows cross stages in
opposite directions, one of them enters a stage as it left an earlier one. Pure: the same network always has the same
estimates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan

import numpy as np

from brokerbed.analysis.models.regression import Estimate, controlled_mean
from brokerbed.analysis.models.rounds import Plan, Played, draw, play
from brokerbed.analysis.models.sampled import SampledTimes, sampled_times
from brokerbed.analysis.models.stages import Key, Network
from brokerbed.scenario.topology import Floats

TARGET = 0.0025  # the relative standard error at which the simulation stops ...
FINE_ROUNDS_LEAST, FINE_ROUNDS_MAX = 2, 6  # ... or after this many rounds of single messages ...
GROUP_ROUNDS_MAX = 8  # ... and this many of groups
PASSAGES = 3_000_000  # of messages through stages, per round
MESSAGES_LEAST = 5000  # of a flow or through a stage in a round: 125 per block
GROUPS_PER_CYCLE = 14  # so many groups come during one ON/OFF cycle, so that groups still see its course
GROUP_LEAST, GROUP_MAX = 3, 32  # fewer messages in a group save nothing; of more the delay is too different
KEY = 2017  # of the random numbers, so that a prediction is always the same
CACHED = 256  # networks: a sweep or a live page asks for the same ones again
UNKNOWN = Estimate(nan, nan)


@dataclass(frozen=True, slots=True)
class Path:
    """What a flow passes up to the stage `last`."""

    flow: int
    last: Key


@dataclass(frozen=True)
class Delays:
    paths: tuple[Estimate | None, ...]  # of the time in the stages, without constant delays
    stages: dict[Key, Estimate | None]  # of those for which no formula is exact
    times: tuple[SampledTimes | None, ...]  # the distribution for each path, with constant delays between stages


@lru_cache(maxsize=CACHED)
def estimate(network: Network, paths: tuple[Path, ...]) -> Delays:
    """Estimates for paths that have bursty stages, and for all such stages.

    None where messages are so rare that a round would have too few of them: beside ON/OFF cycles, and then there are no
    bursts, or beside other flows.
    """
    loads = [float(stage.centre().utilisation(network.rate_per_s(key))) for key, stage in network.stages]
    assert max(loads) < 1, "queues that are not stable have no mean"
    sampled = [key for key in network.order if not network.is_exact(key)]
    horizon_s = Plan(network, PASSAGES).horizon_s()
    frequent = tuple(path for path in paths if network.flows[path.flow].rate_per_s * horizon_s >= MESSAGES_LEAST)
    busy = [key for key in sampled if network.rate_per_s(key) * horizon_s >= MESSAGES_LEAST]
    found = _Simulation(network, frequent, busy).run() if busy else Delays((), {}, ())
    places = {path: place for place, path in enumerate(frequent)}
    return Delays(
        tuple(found.paths[places[path]] if path in places else None for path in paths),
        {key: found.stages.get(key) for key in sampled},
        tuple(found.times[places[path]] if path in places else None for path in paths),
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """One mean that is wanted: what formulas know of it, what is simulated, and the stages whose controls help."""

    known_s: float
    result: Callable[[Played], Floats]
    controlled_by: tuple[Key, ...]


class _Simulation:
    def __init__(self, network: Network, paths: tuple[Path, ...], sampled: list[Key]) -> None:
        self._network, self._paths, self._sampled = network, paths, sampled
        self._plan = Plan(network, PASSAGES)
        self._group = self._group_size()
        self._targets = [*map(self._of_path, paths), *map(self._of_stage, sampled)]
        self._fine: list[Played] = []
        self._coupled: list[Played] = []  # the same random numbers in groups
        self._groups: list[Played] = []  # independent ones

    def run(self) -> Delays:
        for _ in range(FINE_ROUNDS_LEAST):
            self._play_fine()
        estimates = self._estimates()
        while not all(each.standard_error <= TARGET * each.mean for each in estimates[: len(self._paths)]):
            if self._group > 1 and len(self._groups) < GROUP_ROUNDS_MAX:
                generator = self._generator(1, len(self._groups))
                self._groups.append(play(self._plan, draw(self._plan, self._group, generator), generator))
            elif len(self._fine) < FINE_ROUNDS_MAX:
                self._play_fine()
            else:
                break
            estimates = self._estimates()
        of_paths = tuple(estimates[: len(self._paths)])
        times = tuple(
            sampled_times(
                [played.times_s[path.flow, path.last] for played in self._fine],
                of_path.mean + self._network.flows[path.flow].delays_s(path.last),
            )
            for path, of_path in zip(self._paths, of_paths, strict=True)
        )
        return Delays(of_paths, dict(zip(self._sampled, estimates[len(self._paths) :], strict=True)), times)

    def _play_fine(self) -> None:
        generator = self._generator(0, len(self._fine))
        draws = draw(self._plan, 1, generator)
        self._fine.append(play(self._plan, draws, generator, [(path.flow, path.last) for path in self._paths]))
        if self._group > 1:
            self._coupled.append(play(self._plan, draws.grouped(self._group), None))

    def _generator(self, *which: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((KEY, *which))))

    def _group_size(self) -> int:
        """How many messages make a group: few compared with those that come in one ON/OFF cycle."""
        stages = {key: self._network.by_key[key] for key in self._plan.stages}
        if any(stage.recorded for stage in stages.values()):
            return 1  # there is no formula for groups at such a stage
        per_cycle = [
            self._network.rate_per_s(key) * stage.cycle_s for key, stage in stages.items() if stage.cycle_s is not None
        ]
        group = min(GROUP_MAX, int(max(per_cycle, default=0.0) / GROUPS_PER_CYCLE))
        return group if group >= GROUP_LEAST else 1

    # -- targets ----------------------------------------------------------------------------------------------

    def _of_path(self, path: Path) -> _Target:
        keys = self._network.flows[path.flow].path(path.last)
        sampled = [key for key in keys if not self._network.is_exact(key)]
        known_s = sum(self._plan.expected_s[key] for key in keys if key not in sampled)

        def result(played: Played) -> Floats:
            whole: Floats = np.sum([played.of_flows[path.flow, key] for key in sampled], axis=0)
            return whole

        return _Target(known_s, result, keys)

    def _of_stage(self, key: Key) -> _Target:
        """The controls are those of the way of the flow that brings most messages."""
        flows = self._network.flows
        main = max((number for number, _ in self._network.inputs[key]), key=lambda number: flows[number].rate_per_s)
        bursty = [number for number, hop in self._network.inputs[key] if hop.after is not None]
        if bursty:
            main = max(bursty, key=lambda number: flows[number].rate_per_s)
        return _Target(0.0, lambda played: played.of_stages[key], flows[main].path(key))

    def _estimates(self) -> list[Estimate]:
        return [self._estimated(target) for target in self._targets]

    def _estimated(self, target: _Target) -> Estimate:
        of_groups = UNKNOWN
        coupled = np.zeros(0)
        if self._groups:
            of_groups = self._controlled(self._groups, target, np.zeros(0), UNKNOWN)
            coupled = _joined([target.result(played) for played in self._coupled])
        found = self._controlled(self._fine, target, coupled, of_groups)
        return Estimate(target.known_s + found.mean, found.standard_error)

    def _controlled(self, rounds: Sequence[Played], target: _Target, other: Floats, of_other: Estimate) -> Estimate:
        per_round = [[each for key in target.controlled_by for each in played.controls[key]] for played in rounds]
        controls = [_joined(list(same)) for same in zip(*per_round, strict=True)]
        return controlled_mean(_joined([target.result(played) for played in rounds]), controls, other, of_other)


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0)
