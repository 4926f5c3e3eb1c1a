"""True delays of tandems with two ON/OFF centres: `python -m tests.unit.analysis.tandem_truth > FILE`.

A faithful simulation that shares nothing with the product's simulator or models. Thousands of replicas advance together,
message by message, in real time. ON and OFF periods are never drawn as such, because they have no memory: while a server
idles its state is a two-state Markov chain with known transition probabilities, and service of S seconds meets a number
of OFF periods that has a Poisson law. The means of the first centre, and of a twin of the second one, are known and correct the estimate.

The path is: Poisson arrivals, the publisher's ON/OFF centre, M/M/1 queues, the subscriber's ON/OFF centre, an M/M/1 queue.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TABLE = Path(__file__).parent / "tandem_truth.csv"
SETS, SEED = 30, 20_261_118
REPLICAS = 500
WARMUP_CYCLES = 40  # of the longer cycle: at a load of .8 a queue forgets how it began within some 25
STANDARD_ERROR = 0.004  # of the estimate, relative: where a simulation stops ...
MESSAGES_MAX = 100_000_000  # ... or here

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tandem:
    """Times in seconds. All laws are exponential."""

    rate_per_s: float
    demand_1: float
    on_1: float
    off_1: float
    stages: int
    stage_demand: float
    demand_2: float
    on_2: float
    off_2: float
    last_demand: float


@dataclass(frozen=True)
class Truth:
    number: int  # of the set
    tandem: Tandem
    mean_s: float
    standard_error_s: float


def drawn() -> list[Tandem]:
    """ON:OFF from 1:6 to 6:1, loads from .1 to .8, cycles of the centres from equal to 100:1, five queues between."""
    draw = np.random.default_rng(SEED)
    return [_tandem(draw) for _ in range(SETS)]


def _tandem(draw: np.random.Generator) -> Tandem:
    rate = float(np.exp(draw.uniform(np.log(0.5), np.log(5))))
    short = float(np.exp(draw.uniform(0, np.log(20)))) / rate  # a cycle of one to twenty messages
    cycles = [short, short * float(np.exp(draw.uniform(0, np.log(100))))]
    if draw.random() < 0.5:
        cycles.reverse()
    centres = []
    for cycle in cycles:
        ratio = float(np.exp(draw.uniform(-np.log(6), np.log(6))))
        on, load = cycle * ratio / (1 + ratio), float(draw.uniform(0.1, 0.8))
        centres.append((load / rate * on / cycle, on, cycle - on))
    of_stages, of_last = draw.uniform(0.05, 0.6, 2).tolist()
    return Tandem(rate, *centres[0], 5, of_stages / rate, *centres[1], of_last / rate)


class _Queue:
    def __init__(self, demand: float, draw: np.random.Generator) -> None:
        self.demand, self.draw = demand, draw
        self.free: Floats = np.zeros(REPLICAS)

    def pass_through(self, arrivals: Floats) -> Floats:
        self.free = np.maximum(arrivals, self.free) + self.draw.exponential(self.demand, REPLICAS)
        return self.free


class _OnOffQueue(_Queue):
    """At the end of a service the server is ON; from there its state at the next arrival is drawn.

    Beside it runs a twin, which the Poisson process of the publications feeds directly: message by message it has the
    same service and the same OFF periods within service, and the mean time in it is known exactly.
    """

    def __init__(self, demand: float, on: float, off: float, draw: np.random.Generator) -> None:
        super().__init__(demand, draw)
        self.on, self.off = on, off
        self.of_twin = _Queue(demand, draw)

    def pass_through(self, arrivals: Floats) -> Floats:
        return self.pass_both(arrivals, arrivals)[0]

    def pass_both(self, arrivals: Floats, of_twin: Floats) -> tuple[Floats, Floats]:
        service = self.draw.exponential(self.demand, REPLICAS)
        outages = self.draw.poisson(service / self.on)
        met = np.flatnonzero(outages)
        service[met] += self.draw.standard_gamma(outages[met]) * self.off
        chance, rest = self.draw.random(REPLICAS), self.draw.exponential(self.off, REPLICAS)
        for queue, arriving in ((self, arrivals), (self.of_twin, of_twin)):
            idle_s = np.maximum(arriving - queue.free, 0.0)
            chance_of_off = self.off / (self.on + self.off) * -np.expm1(-idle_s * (1 / self.on + 1 / self.off))
            queue.free = np.maximum(arriving, queue.free) + service + np.where(chance < chance_of_off, rest, 0.0)
        return self.free, self.of_twin.free


def exact_mean_s(rate: float, demand: float, on: float, off: float) -> float:
    """Bouloukakis et al. 2017, equation 5."""
    stretch = (on + off) / on
    return (off * off / (on + off) + demand * stretch) / (1 - rate * demand * stretch)


def simulate(
    tandem: Tandem, seed: int, relative_error: float = STANDARD_ERROR, messages_max: int = MESSAGES_MAX
) -> Truth:
    draw = np.random.default_rng([SEED, seed])
    first = _OnOffQueue(tandem.demand_1, tandem.on_1, tandem.off_1, draw)
    between = [_Queue(tandem.stage_demand, draw) for _ in range(tandem.stages)]
    second = _OnOffQueue(tandem.demand_2, tandem.on_2, tandem.off_2, draw)
    last = _Queue(tandem.last_demand, draw)
    rate = tandem.rate_per_s
    known = np.array([
        exact_mean_s(rate, tandem.demand_1, tandem.on_1, tandem.off_1),
        exact_mean_s(rate, tandem.demand_2, tandem.on_2, tandem.off_2),
    ])  # fmt: skip
    cycle = max(tandem.on_1 + tandem.off_1, tandem.on_2 + tandem.off_2)
    warmup = int(max(2000, WARMUP_CYCLES * cycle * rate))
    published: Floats = np.zeros(REPLICAS)
    in_all, in_known = np.zeros(REPLICAS), np.zeros((2, REPLICAS))
    steps = 0
    while True:
        published = published + draw.exponential(1 / rate, REPLICAS)
        at = left_first = first.pass_through(published)
        for queue in between:
            at = queue.pass_through(at)
        at, left_twin = second.pass_both(at, published)
        at = last.pass_through(at)
        steps += 1
        if steps <= warmup:
            continue
        in_all += at - published
        in_known += np.stack((left_first, left_twin)) - published
        count = steps - warmup
        if count % 2000 == 0:
            mean, error = _corrected(in_all / count, in_known / count - known[:, np.newaxis])
            if error < relative_error * mean or count * REPLICAS >= messages_max:
                return Truth(seed, tandem, mean, error)


def _corrected(of_all: Floats, excesses: Floats) -> tuple[float, float]:
    """The mean over the replicas and its standard error, where the queues whose mean is known have that mean."""
    matrix = np.column_stack((np.ones(REPLICAS), *excesses))
    coefficients = np.linalg.lstsq(matrix, of_all, rcond=None)[0]
    rest = of_all - matrix @ coefficients
    variance = float(rest @ rest) / (REPLICAS - len(coefficients))
    return float(coefficients[0]), float(np.sqrt(variance * np.linalg.inv(matrix.T @ matrix)[0, 0]))


def table() -> Iterator[Truth]:
    """What is in the repository."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = {
                field.name: (int if field.name == "stages" else float)(row[field.name]) for field in fields(Tandem)
            }
            yield Truth(int(row["set"]), Tandem(**known), float(row["mean_s"]), float(row["standard_error_s"]))  # type: ignore[arg-type]


def write(truths: Iterator[Truth], line: Callable[[str], object]) -> None:
    line(",".join(["set", *(field.name for field in fields(Tandem)), "mean_s", "standard_error_s"]))
    for truth in truths:
        known = (f"{value:.9g}" for value in astuple(truth.tandem))
        line(",".join([str(truth.number), *known, f"{truth.mean_s:.6g}", f"{truth.standard_error_s:.2g}"]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.analysis.tandem_truth", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the number of the first set")
    parser.add_argument("--sets", type=int, default=SETS, help="how many")
    given = parser.parse_args()
    chosen = list(enumerate(drawn()))[given.first : given.first + given.sets]

    def line(text: str) -> None:
        print(text, flush=True)

    write((simulate(tandem, seed) for seed, tandem in chosen), line)


if __name__ == "__main__":
    main()
