"""How often the 95% intervals hold the true value: `python -m tests.analysis.coverage`, `make coverage-campaign`.

Many runs of one small scenario that differ in their seed, all analysed at once. Theory is exact for it: tables and rates of
classes without delays, and an M/M/1 queue, alone.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from analysis.jobs.analyse import analyse
from analysis.runs import find
from orchestrator.run import VIRTUAL, run
from orchestrator.scenario import load

RUNS = 200
BETWEEN = (0.92, 0.98)
TEXT = """
scenario: 1
name: coverage
clock: {{warmup: 10s, measure: {measure_s}s}}
topology: {{tree: star, brokers: 3}}
classes: 4
subscriptions: {{mean_active: 6, lifetime: {{mean: 1s}}}}
publications: {{rate: 8/s}}
publishers: [{{id: p, broker: b0, topic: t, rate: 2/s}}]
subscribers: [{{id: s, broker: b0, topic: t, session_service: {{mean: 100ms}}}}]
copies: 2
sweep: {{seed: {seeds}}}
"""


def covered(runs: int, folder: Path, measure_s: int = 1000) -> dict[str, float]:
    """Per headline row: the part of the runs whose interval holds the prediction."""
    file = folder / "coverage.yaml"
    file.write_text(TEXT.format(measure_s=measure_s, seeds=list(range(1, runs + 1))), encoding="utf-8")
    (analysis,) = analyse([find(run(load(file), VIRTUAL, None, 1, folder, lambda _: None))])
    hits: Counter[str] = Counter()
    for point in analysis.points:
        for row in point.headline:
            assert row.predicted is not None
            assert row.ci_low is not None
            assert row.ci_high is not None
            hits[row.metric] += row.ci_low <= row.predicted <= row.ci_high
    return {metric: number / runs for metric, number in hits.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.coverage", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    with TemporaryDirectory() as folder:
        found = covered(parser.parse_args().runs, Path(folder))
    for metric, part in found.items():
        print(f"{metric:<32} {part:.1%}")
    is_right = all(BETWEEN[0] <= part <= BETWEEN[1] for metric, part in found.items() if metric != "delivery.ratio")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
