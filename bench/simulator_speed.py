"""The virtual ground: link messages per second on one core, and memory over time (127 brokers, width 8, log on).

`--figure3` measures the time that Figure 3 of Mühl et al. takes: 7 trees and 20 values of N_s, remote entries only.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from brokerbed.broker.routing.registry import ALGORITHMS, DEFAULT
from brokerbed.clients.raw_log import writer
from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import Scenario, load

ROUTINGS = tuple(ALGORITHMS.built_in)
WARM_S, TIMED_S = 40, 40
PARTS = 3  # periods of that length, for memory over time
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
ACTIVE = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 150_000,
          200_000, 300_000, 500_000, 700_000)  # fmt: skip
LIFETIMES = {
    500: 24_000,
    2000: 15_000,
    700_000: 5000,
}  # lifetimes in a point of figure 3 up to that N_s, for standard errors of 1%

TEXT = """
scenario: 1
name: speed
clock: {{warmup: {warm}s, measure: {timed}s}}
topology: {{tree: levels, brokers: 127, width: {width}}}
routing: {routing}
classes: 1000
subscriptions: {{mean_active: {active}, lifetime: {{mean: 60s}}}}
publications: {{rate: {rate}/s}}
"""


def scenario(**values: object) -> Scenario:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "speed.yaml"
        file.write_text(TEXT.format(**values))
        return load(file).points[0]


class _Timed(Simulation):
    """Records processor time, link messages and memory before the measured time and after each part of it."""

    def __init__(self, timed_scenario: Scenario, folder: Path) -> None:
        super().__init__(timed_scenario, writer(folder))
        self.samples: list[tuple[float, int, float]] = []
        for part in range(PARTS + 1):
            self.loop.at(
                timed_scenario.clock.warmup + part * timed_scenario.clock.measure // PARTS - 1, self._sample, None
            )

    def _sample(self, _: None) -> None:
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.samples.append((time.process_time(), self._sent(), peak_mb))

    def _sent(self) -> int:
        brokers = [host.broker for host in self.hosts.values()]
        sessions = [session for broker in brokers for session in (*broker.links.values(), broker.overlay.parent)]
        links = [session.link for session in sessions if session is not None]
        return sum(sum(link.sent.values()) for link in links if link is not None)


def speed(routing: str) -> tuple[list[float], list[float]]:
    """Link messages per second in each part of the time, and the peak memory before the first and after each part."""
    timed_scenario = scenario(warm=WARM_S, timed=PARTS * TIMED_S, width=8, routing=routing, active=10_000, rate=1000)
    with TemporaryDirectory() as folder:
        simulation = _Timed(timed_scenario, Path(folder))
        simulation.run()
    rates = [
        (after - before) / (ended_s - begun_s)
        for (begun_s, before, _), (ended_s, after, _) in pairwise(simulation.samples)
    ]
    return rates, [peak_mb for _, _, peak_mb in simulation.samples]


def point(width: int, active: int) -> float:
    """Runs one point of figure 3; returns its processor time."""
    begun_s = time.process_time()
    lifetimes = next(number for most, number in LIFETIMES.items() if active <= most)
    measured_s = max(1, round(60 * lifetimes / active))
    timed_scenario = scenario(warm=1, timed=measured_s, width=width, routing=DEFAULT, active=active, rate=0)
    with TemporaryDirectory() as folder:
        Simulation(timed_scenario, writer(Path(folder))).run()
    return time.process_time() - begun_s


def figure3(jobs: int | None) -> None:
    begun = time.monotonic()
    points = [(width, active) for width in WIDTHS for active in reversed(ACTIVE)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        times_s = list(pool.map(point, *zip(*points, strict=True)))
    for width in WIDTHS:
        of_tree = sum(time_s for time_s, (at_width, _) in zip(times_s, points, strict=True) if at_width == width)
        print(f"width {width:<3} {of_tree:6.0f} s of processor time")
    print(f"{len(points)} points: {sum(times_s):.0f} s of processor time, {time.monotonic() - begun:.0f} s in all")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator_speed", description=__doc__)
    parser.add_argument("--figure3", action="store_true", help="time the sweep of figure 3 instead (some 15 minutes)")
    parser.add_argument("--jobs", type=int, help="points of figure 3 at a time (default: one for each core)")
    options = parser.parse_args()
    if options.figure3:
        figure3(options.jobs)
        return
    print(f"virtual ground, width 8, N_s = 10 000: {PARTS} x {TIMED_S} s of model time, after {WARM_S} s to warm up")
    print(f"{'routing':<10} {'messages/s':>12} {'in each part':>30}   peak MB before and after each part")
    for routing in ROUTINGS:
        rates, peaks_mb = speed(routing)
        parts = "".join(f"{rate:10,.0f}" for rate in rates)
        print(
            f"{routing:<10} {median(rates):12,.0f} {parts}   {'  '.join(f'{peak_mb:.0f}' for peak_mb in peaks_mb)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
