"""How often the 95% intervals hold the true value: `python -m tests.analysis.coverage`, `make coverage-campaign`.

Many runs of two small scenarios that differ in their seed, all analysed at once. Theory is exact for them: tables and rates of
classes without delays, and single queues. In the second one a lifetime and a cycle last for a tenth of a batch of the twenty
that a run has at least. Each run is also judged with a prediction that is wrong by two tolerances, and with the right one.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from brokerbed.analysis.jobs.analyse import analyse
from brokerbed.analysis.runs import find
from brokerbed.analysis.verdicts import AGREES, DIFFERS, verdict_of
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

RUNS = 200
BETWEEN = (0.92, 0.98)
WRONG_MAX = 0.025
TEXT = """
scenario: 1
name: coverage
clock: {{warmup: {warmup_s}s, measure: {measure_s}s}}
topology: {{tree: star, brokers: 3}}
classes: 4
subscriptions: {{mean_active: 6, lifetime: {{mean: {lifetime_s}s}}}}
publications: {{rate: 8/s}}
publishers: [{{id: p, broker: b0, topic: t, rate: 2/s}}]
subscribers: [{{id: s, broker: b0, topic: t, {subscriber}}}]
copies: 2
sweep: {{seed: {seeds}}}
"""
MEMORIES = {
    "short": {"lifetime_s": 1, "warmup_s": 10, "subscriber": "session_service: {mean: 100ms}"},
    "long": {"lifetime_s": 5, "warmup_s": 50, "subscriber": "on: {mean: 2.5s}, off: {mean: 2.5s}"},
}


class Found:
    """Shares of the runs, per headline row."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.covered: Counter[str] = Counter()
        self.without: Counter[str] = Counter()  # an interval
        self.wrongly: Counter[str] = Counter()  # verdicts, of all rows together

    def add(self, metric: str, predicted: float, value: float, low: float | None, high: float | None) -> None:
        if low is None or high is None:
            self.without[metric] += 1
            return
        self.covered[metric] += low <= predicted <= high
        tolerance = (high - low) / 2 / predicted  # with which wide and narrow intervals are alike hard to judge
        self.wrongly[AGREES] += verdict_of(predicted / (1 + 2 * tolerance), value, low, high, tolerance) == AGREES
        self.wrongly[DIFFERS] += verdict_of(predicted, value, low, high, tolerance) == DIFFERS

    def share(self, metric: str) -> float:
        """Of the rows that have an interval, those that hold the true value."""
        return self.covered[metric] / (self.runs - self.without[metric])


def covered(memory: str, runs: int, folder: Path, measure_s: int = 1000) -> Found:
    file = folder / "coverage.yaml"
    seeds = list(range(1, runs + 1))
    file.write_text(TEXT.format(measure_s=measure_s, seeds=seeds, **MEMORIES[memory]), encoding="utf-8")
    (analysis,) = analyse([find(run(load(file), VIRTUAL, None, 1, folder, lambda _: None))])
    found = Found(runs)
    for point in analysis.points:
        for row in point.headline:
            assert row.predicted is not None
            assert row.measured is not None
            found.add(row.metric, row.predicted, row.measured, row.ci_low, row.ci_high)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.coverage", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    runs, is_right = parser.parse_args().runs, True
    for memory in MEMORIES:
        with TemporaryDirectory() as folder:
            found = covered(memory, runs, Path(folder))
        print(f"{memory} memory, {runs} runs")
        for metric in found.covered:
            share = found.share(metric)
            is_right &= metric == "delivery.ratio" or BETWEEN[0] <= share <= BETWEEN[1]
            print(f"  {metric:<32} {share:.1%} (no interval {found.without[metric] / runs:.1%})")
        rows = sum(found.runs - found.without[metric] for metric in found.covered)
        for verdict, when in ((AGREES, "wrong by two tolerances"), (DIFFERS, "right")):
            part = found.wrongly[verdict] / rows
            is_right &= part <= WRONG_MAX
            print(f"  {verdict} though the prediction is {when}: {part:.1%} of {rows} rows", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
