"""How long `brokerbed predict --json` takes for the 1400 scenarios of Mühl et al.'s running example.

The output has the wall time after start-up (the whole command minus `brokerbed --version`), the peak memory of the
process, and the ratio to a reference that evaluates the same equations one broker at a time in plain Python.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from brokerbed import shipped
from brokerbed.scenario import Scenario, load

REPEATS = 5
COMMAND = Path(sys.prefix) / "bin" / "brokerbed"


def timed(*arguments: str) -> tuple[float, int, bytes]:
    """Seconds, peak memory in bytes and output of one brokerbed command."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen([COMMAND, *arguments], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        out.seek(0)
        return seconds, usage.ru_maxrss * 1024, out.read()


def plain(scenario: Scenario) -> tuple[float, float]:
    """Remote entries and control rate, computed broker by broker; all classes are alike (eq. 1, 3, 5, 8 and 10)."""
    everywhere = scenario.subscriptions.spread
    assert everywhere is not None
    brokers = range(len(scenario.tree))
    silent = [math.exp(-everywhere.mean_active) for _ in brokers]
    arrivals = [everywhere.arrival_rate_per_s for _ in brokers]
    parents = scenario.tree.parents.tolist()
    for broker in reversed(brokers[1:]):
        silent[parents[broker]] *= silent[broker]
        arrivals[parents[broker]] += arrivals[broker]
    remote = sum(1 - silent[broker] for broker in brokers[1:])
    control = sum(2 * arrivals[broker] * silent[broker] for broker in brokers[1:])
    return remote * scenario.classes, control * scenario.classes


def main() -> None:
    name = "muehl2009/running_example"
    start_up, sweep, memory, peer = [], [], [], []
    output = b""
    for _ in range(REPEATS):
        start_up.append(timed("--version")[0])
        seconds, peak, output = timed("predict", name, "--json")
        sweep.append(seconds)
        memory.append(peak)
        start = time.perf_counter()
        for _ in range(2):
            expected = [plain(scenario) for scenario in load(shipped.find(name)).points]
        peer.append((time.perf_counter() - start) / 2)
    points = json.loads(output)["points"]
    worst = max(
        abs(row["predicted"] / value - 1)
        for point, (remote, control) in zip(points, expected, strict=True)
        for row in point["metrics"]
        for metric, value in (("table.remote_entries", remote), ("rate.control", control))
        if row["metric"] == metric
    )
    after_start_up = statistics.median(sweep) - statistics.median(start_up)
    print(f"{len(points)} scenarios, median of {REPEATS}: {after_start_up:.2f} s after a start-up of", end=" ")
    print(f"{statistics.median(start_up):.2f} s, peak memory {max(memory) / 1e6:.0f} MB")
    ratio = after_start_up / statistics.median(peer)
    print(f"ratio to loading and a plain-Python evaluation of two of the six rows: {ratio:.2f}")
    print(f"largest relative difference to it: {worst:.1e}")


if __name__ == "__main__":
    main()
