"""The analysis of logs of 1, 10 and 100 million records on two cores, compared with pandas on one core and 4 GB.

The logs are of virtual runs: 127 brokers, width 8, identity routing, and peers that connect and disconnect. Every
measurement has a process of its own, and is timed after Spark, or pandas, has started. pandas computes only the
headline rows and their batches, Spark every row with its interval; values that both compute must be equal.
"""

import argparse
import math
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.measurement import Means, Measurement, measurement_by
from brokerbed.analysis.runs import Finished, find
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

MEMORY_BYTES = 4 << 30
MILLION = 1_000_000
WARM_S, TRIAL_S = 5, 10
EQUAL = 1e-9  # relative tolerance, for sums of doubles in another order
MEASURES, EVERYTHING, PANDAS = "Spark, measures", "Spark, everything", "pandas, headline rows"
COMMANDS = {
    MEASURES: ("bench.measured_by_spark", "measures"),
    EVERYTHING: ("bench.measured_by_spark", "everything"),
    PANDAS: ("bench.measured_by_pandas", str(MEMORY_BYTES)),
}
TEXT = """
scenario: 1
name: records
clock: {{warmup: {warm}s, measure: {measured}s}}
topology: {{tree: levels, brokers: 127, width: 8}}
routing: identity
classes: 1000
subscriptions: {{mean_active: 10000, lifetime: {{mean: 60s}}}}
publications: {{rate: 1000/s}}
publishers:
  - {{id: sensor, broker: b100, topic: city/noise, rate: 1/s, qos: 1, on: {{mean: 4s}}, off: {{mean: 2s}},
     service: {{mean: 10ms}}}}
subscribers:
  - {{id: phone, broker: b126, topic: city/noise, qos: 1, on: {{mean: 4s}}, off: {{mean: 2s}},
     session_service: {{mean: 10ms}}, service: {{mean: 10ms}}}}
copies: 20
"""


def virtual_run(out: Path, measured_s: int) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    file = out / "records.yaml"
    file.write_text(TEXT.format(warm=WARM_S, measured=measured_s), encoding="utf-8")
    return run(load(file), VIRTUAL, None, 1, out, lambda _: None)


def trial() -> tuple[int, float]:
    """The number of rows before model time zero, and the rows per second of model time, from a short run."""
    with TemporaryDirectory() as folder:
        finished = find(virtual_run(Path(folder), TRIAL_S)).runs[0]
        before = 0
        for part in finished.parts:
            times_ns = pq.read_table(part.file, columns=["time_ns"], partitioning=None)["time_ns"]
            before += pc.sum(pc.less(times_ns, 0)).as_py() or 0
    return before, (finished.rows - before) / (WARM_S + TRIAL_S)


def log_of(out: Path, millions: int) -> Finished:
    """A log of about so many records; an existing one is used again."""
    begun = time.monotonic()
    if not list(out.glob("records-*")):
        before, per_s = trial()
        virtual_run(out, max(1, round((millions * MILLION - before) / per_s - WARM_S)))
    finished = find(next(out.glob("records-*")))
    size_mb = sum(part.file.stat().st_size for part in finished.runs[0].parts) / MILLION
    made_s = time.monotonic() - begun
    print(f"\n{finished.runs[0].rows:,} records, {size_mb:,.0f} MB of Parquet, ready after {made_s:,.0f} s", flush=True)
    return finished


def compare(finished: Finished) -> tuple[dict[str, Measurement], int]:
    rows = finished.runs[0].rows
    head = f"{'':<22} {'seconds':>8} {'records/s':>10} {'us/record':>9} {'CPU us':>7} {'peak MB':>8} {'start s':>8}"
    print(f"{head} {'load':>5}")
    measured: dict[str, Measurement] = {}
    for name, command in COMMANDS.items():
        result = measured[name] = measurement_by(*command, str(finished.folder))
        load_1min = os.getloadavg()[0]
        if result.failed:
            print(f"{name:<22} {result.failed} after {result.seconds:,.1f} s", flush=True)
            continue
        per_record = f"{result.seconds / rows * 1e6:9.2f} {result.cpu_s / rows * 1e6:7.2f}"
        took = f"{result.seconds:8,.1f} {rows / result.seconds:10,.0f} {per_record}"
        print(
            f"{name:<22} {took} {result.peak_bytes / MILLION:8,.0f} {result.start_s:8.1f} {load_1min:5.1f}", flush=True
        )
    if not measured[PANDAS].failed and not measured[MEASURES].failed:
        must_be_equal(measured[MEASURES].means, measured[PANDAS].means)
        ratio = measured[MEASURES].seconds / measured[PANDAS].seconds
        print(f"both computed the same values; Spark took {ratio:.2f} times as long as pandas")
    return measured, rows


def must_be_equal(ours: Means, theirs: Means) -> None:
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    for name, means in theirs.items():
        pairs = list(zip(ours[name], means, strict=True))
        assert all(math.isclose(*pair, rel_tol=EQUAL, abs_tol=EQUAL) for pair in pairs), (name, pairs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.analysis_speed", description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10, 100], help="sizes of the logs")
    parser.add_argument("--keep", type=Path, help="folder in which logs are kept for the next call")
    options = parser.parse_args()
    before: tuple[int, dict[str, float]] | None = None
    with TemporaryDirectory() as temporary:
        for millions in options.millions:
            measured, rows = compare(log_of((options.keep or Path(temporary)) / str(millions), millions))
            cost = {name: result.seconds / rows for name, result in measured.items() if not result.failed}
            for name in (MEASURES, EVERYTHING):
                is_within = name in cost and measured[name].peak_bytes <= MEMORY_BYTES
                print(f"{name}: {'within' if is_within else 'NOT within'} {MEMORY_BYTES >> 30} GB", end="")
                if before is not None and name in cost and name in before[1]:
                    ratio = cost[name] / before[1][name]
                    print(f"; a record costs {ratio:.2f} times what it costs in a log of {before[0]} million", end="")
                print(flush=True)
            before = millions, cost


if __name__ == "__main__":
    main()
