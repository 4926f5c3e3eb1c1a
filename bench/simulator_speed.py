"""The virtual ground: link messages per second on one core, and memory over time (127 brokers, width 8, log on).

A second table has the speed with peers that connect and disconnect, beside a SimPy model of the same queues. It counts
stage services (a message has waited in one emulated queue and was served) and messages end to end. Rates are per second
of processor time; those per second of wall time are lower if the machine has other work.

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
from typing import NamedTuple

import numpy as np

from bench import simpy_peers
from brokerbed.broker.routing.registry import ALGORITHMS, DEFAULT
from brokerbed.clients.raw_log import writer
from brokerbed.log.reader import DTYPE
from brokerbed.log.record import CLIENTS, MAGIC, WAITED, Kind
from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import Scenario, load

ROUTINGS = tuple(ALGORITHMS.built_in)
WARM_S, TIMED_S = 40, 40
PARTS = 3  # periods of that length, for memory over time
PEERS_FILE = Path(__file__).parent.parent / "scenarios" / "bouloukakis2017" / "table3_degraded.yaml"
PEERS_CLOCK = "warmup: 50s, measure: 1500s"  # in that file
PEERS_TIMED_S, PEERS_REPEATS = 300, 3
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


class _Sample(NamedTuple):
    cpu_s: float
    wall_s: float
    messages: int  # sent over links so far
    peak_mb: float


class _Timed(Simulation):
    """Records processor time, link messages and memory before the measured time and after each part of it."""

    def __init__(self, timed_scenario: Scenario, folder: Path) -> None:
        super().__init__(timed_scenario, writer(folder))
        self.samples: list[_Sample] = []
        for part in range(PARTS + 1):
            self.loop.at(
                timed_scenario.clock.warmup + part * timed_scenario.clock.measure // PARTS - 1, self._sample, None
            )

    def _sample(self, _: None) -> None:
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.samples.append(_Sample(time.process_time(), time.monotonic(), self._sent(), peak_mb))

    def _sent(self) -> int:
        brokers = [host.broker for host in self.hosts.values()]
        sessions = [session for broker in brokers for session in (*broker.links.values(), broker.overlay.parent)]
        links = [session.link for session in sessions if session is not None]
        return sum(sum(link.sent.values()) for link in links if link is not None)


def speed(routing: str) -> list[_Sample]:
    """What was measured before the first and after each part of the time."""
    timed_scenario = scenario(warm=WARM_S, timed=PARTS * TIMED_S, width=8, routing=routing, active=10_000, rate=1000)
    with TemporaryDirectory() as folder:
        simulation = _Timed(timed_scenario, Path(folder))
        simulation.run()
    return simulation.samples


class PeersSpeed(NamedTuple):
    """What was simulated in the timed part of a run with peers, and how long that took."""

    services: int
    messages: int
    cpu_s: float
    wall_s: float


def peers_scenario() -> Scenario:
    """The degraded row of table 3: 50 copies of a path with 8 emulated queues, two of them ON/OFF; QoS 1."""
    text = PEERS_FILE.read_text()
    assert PEERS_CLOCK in text
    with TemporaryDirectory() as folder:
        file = Path(folder) / "peers.yaml"
        file.write_text(text.replace(PEERS_CLOCK, f"warmup: 50s, measure: {PEERS_TIMED_S}s"))
        return load(file).points[0]


def peers_speed(timed_scenario: Scenario) -> PeersSpeed:
    with TemporaryDirectory() as folder:
        simulation = _Timed(timed_scenario, Path(folder))
        simulation.run()
        first, last = simulation.samples[0], simulation.samples[-1]
        services, messages = _counted(Path(folder), timed_scenario.clock.warmup, simulation.end_ns)
    return PeersSpeed(services, messages, last.cpu_s - first.cpu_s, last.wall_s - first.wall_s)


def _counted(folder: Path, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """How many stage services ended and how many messages were processed at that time, according to the log.

    Every stage logs when a message leaves it: the publisher (`sent`), a broker's input (`served`), a link or a session
    (`sent` after it was queued) and the subscriber (`processed`).
    """
    services = messages = 0
    for file in folder.rglob("*.records"):
        records = np.frombuffer(file.read_bytes()[len(MAGIC) :], DTYPE)
        records = records[(records["time_ns"] >= begin_ns) & (records["time_ns"] < end_ns)]
        kinds = records["kind"]
        has_waited = records["flags"] & WAITED > 0
        if file.parent.name == CLIENTS:
            messages += int(np.sum(kinds == Kind.PROCESSED))
            services += int(np.sum((kinds == Kind.SENT) | (kinds == Kind.PROCESSED)))
        else:
            services += int(np.sum((kinds == Kind.SERVED) | ((kinds == Kind.SENT) & has_waited)))
    return services, messages


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
    print_links()
    print_peers()


def print_links() -> None:
    print(f"virtual ground, width 8, N_s = 10 000: {PARTS} x {TIMED_S} s of model time, after {WARM_S} s to warm up")
    print(
        f"{'routing':<10} {'messages/s':>12} {'in each part':>30} {'per s of wall':>14}   "
        "peak MB before and after each part"
    )
    for routing in ROUTINGS:
        samples = speed(routing)
        rates = [
            (after.messages - before.messages) / (after.cpu_s - before.cpu_s) for before, after in pairwise(samples)
        ]
        per_wall_s = (samples[-1].messages - samples[0].messages) / (samples[-1].wall_s - samples[0].wall_s)
        parts = "".join(f"{rate:10,.0f}" for rate in rates)
        peaks = "  ".join(f"{sample.peak_mb:.0f}" for sample in samples)
        print(f"{routing:<10} {median(rates):12,.0f} {parts} {per_wall_s:14,.0f}   {peaks}", flush=True)


def print_peers() -> None:
    timed_scenario = peers_scenario()
    print(f"\n{timed_scenario.name}, {PEERS_TIMED_S} s of model time, medians of {PEERS_REPEATS} runs")
    print(f"{'':<28} {'services/s':>12} {'per s of wall':>14} {'messages/s':>12}")
    ours = [peers_speed(timed_scenario) for _ in range(PEERS_REPEATS)]
    _print_peers("brokerbed, log on", ours)
    models = [simpy_peers.run(timed_scenario) for _ in range(PEERS_REPEATS)]
    if None in models:
        print("SimPy is not installed (pip install simpy), so its row is left out.")
        return
    theirs = [PeersSpeed(model.services, model.messages, model.cpu_s, model.wall_s) for model in models if model]
    _print_peers("SimPy, the queues only", theirs)


def _print_peers(name: str, results: list[PeersSpeed]) -> None:
    services = median(result.services / result.cpu_s for result in results)
    per_wall_s = median(result.services / result.wall_s for result in results)
    messages = median(result.messages / result.cpu_s for result in results)
    print(f"{name:<28} {services:12,.0f} {per_wall_s:14,.0f} {messages:12,.0f}", flush=True)


if __name__ == "__main__":
    main()
