"""The virtual ground: link messages per second on one core, and memory over time (127 brokers, width 8, log on).

Figure 3 of Mühl et al. is timed with `--figure3`: 7 trees and 20 values of N_s, remote entries only.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.run_directory import RawLogs
from orchestrator.scenario import Scenario, load
from orchestrator.simulator.simulation import Simulation

ROUTINGS = ("identity", "simple", "flooding")
WARM_S, TIMED_S = 40, 40
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
ACTIVE = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 150_000,
          200_000, 300_000, 500_000, 700_000)  # fmt: skip
LIFETIMES = 12_000  # of subscriptions in a point of figure 3: a standard error of about 1%

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
    """Notes processor time and link messages at the beginning and the end of the measured time."""

    def __init__(self, wanted: Scenario, raw: RawLogs) -> None:
        super().__init__(wanted, raw.write)
        self.notes: list[tuple[float, int, int]] = []
        for at_ns in (wanted.clock.warmup, self.end_ns - 1):
            self.loop.at(at_ns, self._note, None)

    def _note(self, _: None) -> None:
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.notes.append((time.process_time(), self._sent(), peak_kb))

    def _sent(self) -> int:
        sessions = [
            it for host in self.hosts.values() for it in (*host.broker.sessions.values(), host.broker.overlay.parent)
        ]
        return sum(sum(it.link.sent.values()) for it in sessions if it is not None and it.link is not None)


def speed(routing: str) -> None:
    wanted = scenario(warm=WARM_S, timed=TIMED_S, width=8, routing=routing, active=10_000, rate=1000)
    with TemporaryDirectory() as folder:
        simulation = _Timed(wanted, RawLogs(Path(folder)))
        simulation.run()
    (begun_s, before, peak_before), (ended_s, after, peak_after) = simulation.notes
    rate = (after - before) / (ended_s - begun_s)
    print(f"{routing:<10} {rate:12,.0f} {peak_before / 1024:14,.0f} {peak_after / 1024:14,.0f}", flush=True)


def point(width: int, active: int) -> float:
    """One point of figure 3; returns its wall time."""
    begun = time.monotonic()
    measured_s = max(1, round(60 * LIFETIMES / active))
    wanted = scenario(warm=1, timed=measured_s, width=width, routing="identity", active=active, rate=0)
    with TemporaryDirectory() as folder:
        Simulation(wanted, RawLogs(Path(folder)).write).run()
    return time.monotonic() - begun


def figure3() -> None:
    begun = time.monotonic()
    points = [(width, active) for width in WIDTHS for active in reversed(ACTIVE)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        times = list(pool.map(point, *zip(*points, strict=True)))
    print(f"figure 3, {len(times)} points: {time.monotonic() - begun:.0f} s, {sum(times):.0f} s in all on one core")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator_speed", description=__doc__)
    parser.add_argument("--figure3", action="store_true", help="time the sweep of figure 3 instead (some 15 minutes)")
    if parser.parse_args().figure3:
        figure3()
        return
    print(f"virtual ground, width 8, N_s = 10 000: {TIMED_S} s of model time, after {WARM_S} s to warm up")
    print(f"{'routing':<10} {'messages/s':>12} {'peak MB before':>14} {'peak MB after':>14}")
    for routing in ROUTINGS:
        speed(routing)


if __name__ == "__main__":
    main()
