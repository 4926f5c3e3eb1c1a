"""The result of a measurement in a process of its own, passed as JSON to the process that started it."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

Means = dict[str, list[float]]  # per row of the metric table: over all time, then batch by batch


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost of a measurement and its values. `failed` says why there are no values."""

    seconds: float
    start_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    failed: str = ""
    means: Means = field(default_factory=dict)

    def print_json(self) -> None:
        print(json.dumps(asdict(self)))


def measurement_by(module: str, *arguments: str) -> Measurement:
    done = subprocess.run([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return Measurement(0.0, failed=f"exit code {done.returncode}")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def peak_bytes(pid: int) -> int:
    """The peak resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
