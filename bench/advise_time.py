"""How long `brokerbed advise --over` takes for 127 brokers, 1000 classes in groups, and all algorithms.

The output has, for each range, the wall time and the processor time of the whole command, and its peak memory.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 5
COMMAND = Path(sys.prefix) / "bin" / "brokerbed"
SCENARIO = """
scenario: 1
name: advised
clock: {measure: 600s}
topology: {tree: levels, brokers: 127, width: 8}
classes: {count: 1000, groups: 100}
subscriptions: {mean_active: 1000, lifetime: {mean: 60s}, wide: {mean_active: 50}}
publications: {rate: 1000/s, sources: {on: {mean: 30s}, off: {mean: 30s}}}
"""
RANGES = (
    "subscriptions.mean_active=10..100000",
    "publications.rate=1/s..10000/s",
    "publications.sources.off.mean=1s..1h",
)


def timed(*arguments: str) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak memory in bytes of one command."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = os.posix_spawn(COMMAND, [str(COMMAND), *arguments], os.environ, file_actions=[
            (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
        ])  # fmt: skip
        _, status, usage = os.wait4(process, 0)
        seconds = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) == 0
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "advised.yaml"
        file.write_text(SCENARIO, encoding="utf-8")
        for over in RANGES:
            runs = [timed("advise", str(file), "--over", over, "--json") for _ in range(REPEATS)]
            wall, processor, memory = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"{over}, median of {REPEATS}: {wall:.2f} s, {processor:.2f} s of a processor, {memory / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
