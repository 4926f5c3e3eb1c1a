"""Crossings of random scenarios, confirmed by runs: `python -m tests.analysis.advice_campaign --crossings 5 --seed 1`.

Each scenario has a tree, groups of classes, subscriptions, and publications of its own; one of the crossings along the
rate of publications, the number of subscriptions or their lifetime is drawn. Prints what each one showed; exits with 1
unless all hold.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from brokerbed.analysis.advise import advise
from brokerbed.scenario import load

RANGES = (
    "publications.rate=0.3/s..300/s",
    "subscriptions.mean_active=2..2000",
    "subscriptions.lifetime.mean=0.5s..200s",
)


def drawn(draw: random.Random) -> str:
    """The text of a scenario."""
    brokers, width = draw.randint(5, 12), draw.choice((1, 2, 4))
    groups = draw.randint(1, 4)
    classes = groups * draw.randint(3, 6)
    wide = f", wide: {{mean_active: {draw.randint(1, 8)}}}" if draw.random() < 0.5 else ""
    sources = ", sources: {on: {mean: 10s}, off: {mean: 20s}}" if draw.random() < 0.5 else ""
    places = sorted(draw.sample(range(brokers), draw.randint(1, brokers)))
    where = f", where: [{', '.join(f'b{place}' for place in places)}]"
    return (
        "scenario: 1\nname: drawn\nclock: {warmup: 30s, measure: 3000s}\n"
        f"seed: {draw.randint(1, 10**6)}\n"
        f"topology: {{tree: levels, brokers: {brokers}, width: {width}}}\n"
        f"classes: {{count: {classes}, groups: {groups}}}\n"
        f"subscriptions: {{mean_active: {draw.randint(10, 60)}, lifetime: {{mean: {draw.randint(2, 10)}s}}{wide}}}\n"
        f"publications: {{rate: {draw.randint(2, 30)}/s{where}{sources}}}\n"
    )


def with_crossing(draw: random.Random, file: Path) -> str:
    """Writes a scenario, and returns a range along which exactly one of its crossings lies."""
    while True:
        file.write_text(drawn(draw), encoding="utf-8")
        key, _, ends = draw.choice(RANGES).partition("=")
        along = advise(file, over=f"{key}={ends}").along
        assert along is not None
        if not along.crossings:
            continue
        place = draw.randrange(len(along.crossings))
        limits = [along.axis.low, *(it.at for it in along.crossings), along.axis.high]
        low, high = (limits[place] * limits[place + 1]) ** 0.5, (limits[place + 1] * limits[place + 2]) ** 0.5
        written = along.axis.written
        load(file)
        return f"{key}={written(low)}..{written(high)}"


def confirmed(file: Path, over: str, runs: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "brokerbed.entry", "advise", str(file), "--over", over, "--confirm", "--json"]
    done = subprocess.run([*command, "--runs", str(runs)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--crossings", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, held = random.Random(given.seed), 0
    for number in range(given.crossings):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "drawn.yaml"
            over = with_crossing(draw, file)
            result = confirmed(file, over, Path(folder) / "runs")
        held += result["confirmed"]["holds"] is True
        (crossing,) = result["over"]["crossings"]
        print(f"{number + 1}: {over.partition('=')[0]} = {crossing['at']:.6g}: {crossing['from']} -> {crossing['to']}")
        for side in result["confirmed"]["sides"]:
            interval = f"{side['ci_low']:.4g} .. {side['ci_high']:.4g}"
            print(
                f"   at {side['at']:.4g}, {side['measured_seconds']:.0f} s: {interval}: {side['verdict']}", flush=True
            )
    print(f"{held} of {given.crossings} hold")
    return 0 if held == given.crossings else 1


if __name__ == "__main__":
    raise SystemExit(main())
