"""Peers that come and go, judged by the command: `python -m tests.analysis.connectivity`, part of `make verdict-campaign`.

Exit code 1 if a verdict is not `agrees` at the tolerance of its case (an equivalence test, so a run that is too short
does not pass), or an invariant is broken. Each run is so long that the standard error is at most 0.28 of the tolerance.
Messages with a lifetime have a shipped scenario (`bouloukakis2017/lifetime`), which tests/analysis/campaign.py runs.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.analysis.algorithms import run_and_tell
from tests.virtual.theory import COMMUTE, Case, commute, table3


def cases() -> list[Case]:
    """The shuffled trace varies by 17% from pass to pass, so a thousand passes are needed for a tolerance of 2%."""
    return [
        Case("recorded", commute("recorded", 4, 50), 0.02, files=(COMMUTE,)),
        Case("shuffled", commute("shuffled", 16, 64), 0.02, files=(COMMUTE,)),
        Case("degraded", table3(2, (1, 1), (1.5, 1.5), (50, 4000), 24), 0.03),
        Case("1/3 to 2/.5", table3(2, (1, 3), (2, 0.5), (100, 6500), 60), 0.03),
        Case(".5/.5 to 4/4", table3(3, (0.5, 0.5), (4, 4), (200, 5500), 60), 0.03),
        Case("10/5 to 8/8", table3(2, (10, 5), (8, 8), (300, 10_000), 60), 0.03),
        Case("metro 1", table3(1, (109, 121.5), (146.3, 96), (5000, 28_000), 100), 0.05),
        Case("metro 2", table3(1, (292.1, 78.7), (155.8, 72.1), (6000, 40_000), 100), 0.05),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.connectivity", description=__doc__)
    parser.add_argument("--only", action="append", help="cases whose name has this in it; may be given several times")
    given, wrong = parser.parse_args(), 0
    for case in cases():
        if given.only is not None and not any(it in case.name for it in given.only):
            continue
        begun = time.monotonic()
        with TemporaryDirectory() as folder:
            for file in case.files:
                shutil.copy(file, folder)
            code = run_and_tell(f"{case.text}tolerance: {case.within:.0%}\n", "virtual", Path(folder))
        print(f"{case.name}: exit code {code}, {time.monotonic() - begun:.0f} s", flush=True)
        wrong += code != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
