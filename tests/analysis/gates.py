"""How often `gate` raises a false alarm, and finds a change of 5%: `python -m tests.analysis.gates`, `make gate-campaign`.

Many runs of a tiny scenario on the virtual ground that differ in their seed: gates between two of them are A/A. In A/B the
new runs have service that takes 5% longer, and so do the delays. All runs are analysed at once.
"""

import argparse
import sys
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from brokerbed.analysis import batches
from brokerbed.analysis.batches import Batches, Key
from brokerbed.analysis.changes import WORSE, Comparison, judged
from brokerbed.analysis.jobs.analyse import analyse
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.runs import find
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

GATES = 200
MARGIN = 0.02
ALARMS_MAX, POWER_MIN = 0.025, 0.9
SERVICE_MS, LONGER = 100.0, 1.05
TEXT = """
scenario: 1
name: gates
clock: {{warmup: 10s, measure: {measure_s}s}}
topology: {{tree: line, brokers: 2}}
classes: 2
subscriptions: {{mean_active: 4, lifetime: {{mean: 1s}}}}
publications: {{rate: 4/s}}
publishers: [{{id: p, broker: b1, topic: t, rate: 2/s}}]
subscribers: [{{id: s, broker: b0, topic: t, session_service: {{mean: {service_ms}ms}}}}]
copies: 10
sweep: {{seed: {seeds}}}
"""


def rows_of(folder: Path, first_seed: int, runs: int, service_ms: float, measure_s: int) -> list[dict[Key, Batches]]:
    """What `gate` reads, of runs with successive seeds."""
    file = folder / "gates.yaml"
    seeds = list(range(first_seed, first_seed + runs))
    file.write_text(TEXT.format(measure_s=measure_s, seeds=seeds, service_ms=service_ms), encoding="utf-8")
    began = time.monotonic()
    place = run(load(file), VIRTUAL, None, 1, folder, lambda _: None)
    ran_s = time.monotonic() - began
    for _ in analyse([find(place)]):
        pass
    analysed_s = time.monotonic() - began - ran_s
    print(f"{runs} runs: {ran_s / runs:.2f} s per run, {analysed_s / runs:.2f} s per analysis", flush=True)
    return batches.read(place, runs)


def worse(base: dict[Key, Batches], new: dict[Key, Batches]) -> list[str]:
    """The rows that are worse."""
    keys = [key for key in base if key in new]
    verdicts = judged([Comparison(metrics()[key[0]], base[key], new[key], MARGIN) for key in keys])
    return [key[0] for key, verdict in zip(keys, verdicts, strict=True) if verdict == WORSE]


def campaign(gates: int, folder: Path, measure_s: int) -> bool:
    base = rows_of(folder, 1, gates, SERVICE_MS, measure_s)
    again = rows_of(folder, 1 + gates, gates, SERVICE_MS, measure_s)
    slower = rows_of(folder, 1 + 2 * gates, gates, LONGER * SERVICE_MS, measure_s)
    alarms = [worse(*pair) for pair in zip(base, again, strict=True)]
    found = [worse(*pair) for pair in zip(base, slower, strict=True)]
    false_alarms = sum(map(bool, alarms)) / gates
    power = sum("delay.end_to_end" in rows for rows in found) / gates
    print(f"A/A: {false_alarms:.1%} of {gates} gates raised an alarm {dict(Counter(chain(*alarms)))}")
    print(f"A/B: {power:.1%} of {gates} gates found that delays are longer {dict(Counter(chain(*found)))}")
    return false_alarms <= ALARMS_MAX and power >= POWER_MIN


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.gates", description=__doc__)
    parser.add_argument("--gates", type=int, default=GATES)
    parser.add_argument("--measure", type=int, default=600, help="seconds of model time")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        return 0 if campaign(options.gates, Path(folder), options.measure) else 1


if __name__ == "__main__":
    sys.exit(main())
