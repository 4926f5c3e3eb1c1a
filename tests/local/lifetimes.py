"""Random experiments in which messages expire and faults strike, on real brokers: `python -m tests.local.lifetimes`.

The schedules are those of tests/virtual/lifetimes.py, and so is the judgement, which reads the logs of the runs. Exit code
1 if a schedule failed.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from brokerbed.log.record import CLIENTS, Reason
from brokerbed.scenario import load
from tests.broker.running import COMMAND
from tests.virtual.lifetimes import MEASURE_S, Drop, Ends, scenario_text, wrong

SPEEDUP = 4
ROUNDED_NS = 1000  # of model time
RUN_S_MAX = 600


def ends_of(run: Path) -> Ends:
    """What the logs in a run directory say of the messages."""
    rows, ends = pd.read_parquet(run / "log"), Ends()
    of_clients = rows["broker"] == CLIENTS
    for row in rows[of_clients & rows["event"].isin(["published", "expires", "processed", "dropped"])].itertuples():
        message = str(row.origin), int(row.sequence)  # type: ignore[arg-type]
        if row.event == "published":
            ends.published[message], ends.published_ns[message] = row.qos, row.time_ns  # type: ignore[assignment]
        elif row.event == "expires":
            ends.dies_ns[message] = row.time_ns  # type: ignore[assignment]
        elif row.event == "processed":
            ends.processed_ns[message, str(row.client)] = row.time_ns  # type: ignore[assignment]
        else:
            ends.dropped[message].append(_drop(row))
    at_brokers = rows[~of_clients]
    entered = {
        (row.origin, row.sequence): (str(row.client), int(row.number))  # type: ignore[arg-type]
        for row in at_brokers[at_brokers["event"] == "identified"].itertuples()
    }
    for row in at_brokers[at_brokers["event"] == "dropped"].itertuples():
        ends.dropped[entered[row.origin, row.sequence]].append(_drop(row))
    return ends


def _drop(row: object) -> Drop:
    return Drop(row.time_ns, Reason(row.reason), row.broker, row.client)  # type: ignore[attr-defined]


def problems(seed: int, peers: str, folder: Path) -> list[str]:
    file = folder / f"{seed}.yaml"
    measured = f"{{measure: {MEASURE_S}s"
    text = scenario_text(seed).replace(measured, f"{measured}, speedup: {SPEEDUP}") + f"peers: {peers}\n"
    file.write_text(text, encoding="utf-8")
    out = folder / str(seed)
    command = [str(COMMAND), "run", str(file), "--on", "local", "--no-analyse", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if done.returncode:
        return [f"exit code {done.returncode}: {done.stderr[-500:]}"]
    (scenario,) = load(file).points
    return list(wrong(scenario, ends_of(Path(done.stdout.strip().splitlines()[-1])), ROUNDED_NS))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.lifetimes", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10, help="how many (10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    chosen = parser.parse_args()
    failed = 0
    with TemporaryDirectory() as folder:
        for seed in range(chosen.first, chosen.first + chosen.schedules):
            peers = "stock" if seed % 2 else "light"
            found = problems(seed, peers, Path(folder))
            failed += bool(found)
            print(f"{seed} ({peers}): {len(found)} problems", *found[:5], sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
