"""The fault campaign: `python -m tests.virtual.campaign`. Exit code 1 if a schedule failed.

A failing schedule is shrunk and written out as a test file, and the campaign goes on. With `--moves` links move. With
`--lifetimes` messages expire, and the scenario of a failing schedule is printed. With `--roaming` clients go from
broker to broker, and their sessions follow them; a failing schedule is printed.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path

from tests.virtual import lifetimes
from tests.virtual.roaming import draw_roaming, roaming_problems
from tests.virtual.schedules import BUGS, Schedule, draw, draw_moving, problems
from tests.virtual.shrinking import as_test, shrink

PROGRESS_SCHEDULES = 100
CHUNK = 10
FAILURES_MAX = 10  # after so many the campaign ends


def first_problem(seed: int, bug: str | None) -> str | None:
    return next(iter(problems(draw(seed), bug)), None)


def first_problem_of_moves(seed: int, bug: str | None) -> str | None:
    return next(iter(problems(draw_moving(seed), bug)), None)


def first_problem_of_lifetimes(seed: int) -> str | None:
    return next(iter(lifetimes.problems(seed)), None)


def first_problem_of_roaming(seed: int) -> str | None:
    return next(iter(roaming_problems(draw_roaming(seed))), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.virtual.campaign", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--bug", choices=BUGS, help="plant this bug; the campaign must find it")
    parser.add_argument("--lifetimes", action="store_true", help="schedules with messages that expire")
    parser.add_argument("--out", type=Path, default=Path(), help="where the test file of a failure is written")
    parser.add_argument("--moves", action="store_true", help="schedules in which links move")
    parser.add_argument("--roaming", action="store_true", help="schedules in which clients go from broker to broker")
    chosen = parser.parse_args()
    begun, failures = time.monotonic(), 0
    seeds = range(chosen.first, chosen.first + chosen.schedules)
    with ProcessPoolExecutor() as pool:
        found = (
            pool.map(first_problem_of_roaming if chosen.roaming else first_problem_of_lifetimes, seeds, chunksize=1)
            if chosen.lifetimes or chosen.roaming
            else pool.map(
                first_problem_of_moves if chosen.moves else first_problem, seeds, repeat(chosen.bug), chunksize=CHUNK
            )
        )
        for done, (seed, problem) in enumerate(zip(seeds, found, strict=True), 1):
            if problem is not None:
                failures += 1
                if chosen.lifetimes or chosen.roaming:
                    text = draw_roaming(seed).written() if chosen.roaming else lifetimes.scenario_text(seed)
                    print(f"schedule {seed}: {problem}\n{text}", flush=True)
                else:
                    report(seed, (draw_moving if chosen.moves else draw)(seed), chosen.bug, problem, chosen.out)
                if failures == FAILURES_MAX:
                    pool.shutdown(wait=False, cancel_futures=True)
                    return 1
            if done % PROGRESS_SCHEDULES == 0 or done == chosen.schedules:
                minutes = (time.monotonic() - begun) / 60
                verdict = f"{failures} FAILED" if failures else "all well"
                print(f"{done} schedules, {60 * minutes:.0f} s, {done / minutes:.0f} a minute, {verdict}", flush=True)
    if not (chosen.lifetimes or chosen.roaming):
        drawn = Counter((draw_moving if chosen.moves else draw)(seed).routing for seed in seeds)
        print("schedules by algorithm: " + ", ".join(f"{name} {count}" for name, count in sorted(drawn.items())))
    return 1 if failures else 0


def report(seed: int, failed: Schedule, bug: str | None, problem: str, out: Path) -> None:
    print(f"schedule {seed}: {problem}; shrinking it", flush=True)
    smallest = shrink(failed, partial(_fails, bug=bug))
    file = out / f"test_schedule_{seed}.py"
    file.write_text(as_test(smallest, bug), encoding="utf-8")
    print(f"{len(smallest.parents)} brokers, {len(smallest.faults)} faults, {len(smallest.publications)} publications, "
          f"{len(smallest.toggles)} toggles: {file}", flush=True)  # fmt: skip


def _fails(schedule: object, bug: str | None) -> bool:
    return bool(problems(schedule, bug))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
