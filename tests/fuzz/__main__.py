"""Coverage-guided fuzzing with atheris: `python -m tests.fuzz [--minutes 5] [--only TARGET]...`.

The time is for all targets together; each runs in a process of its own. Prints, per target, how many inputs were
executed, how many edges of brokerbed's code they covered, and the input that failed, if one did, which is kept in a
file. Exit code 1 if one failed, 3 without atheris, which is not part of `make setup` (`make fuzz` installs it).
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import sys
import atheris
with atheris.instrument_imports(include=["brokerbed"]):
    from tests.fuzz.targets import TARGETS
target = TARGETS[sys.argv.pop(1)].run
atheris.Setup(sys.argv, lambda data: target(bytes(data)))
atheris.Fuzz()
"""
NAMES = (
    "decoder of MQTT 3.1.1", "decoder of MQTT 5", "core", "scenario loader", "log reader", "HTTP API",
)  # fmt: skip
INPUT_BYTES_MAX = 4096
INPUT_S_MAX = 60  # an input that takes longer counts as a failure
EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
COVERED = re.compile(r"\bcov: (\d+)")


def fuzz(name: str, seconds: int, place: Path) -> bool:
    """Whether the target has withstood everything."""
    corpus, found = place / "corpus" / name.replace(" ", "-"), place / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    from tests.fuzz.targets import TARGETS  # not above: the child imports it under instrumentation

    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_S_MAX}", "-print_final_stats=1",
        f"-artifact_prefix={found}/{name.replace(' ', '-')}-",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name, *options, str(corpus)], capture_output=True, text=True, errors="replace"
    )
    executions, covered = EXECUTIONS.findall(done.stderr), COVERED.findall(done.stderr)
    print(f"{name:24}{int(executions[-1]) if executions else 0:>12,}{int(covered[-1]) if covered else 0:>10,}"
          f"{len(list(corpus.iterdir())):>10,}  {'well' if done.returncode == 0 else 'FAILED'}", flush=True)  # fmt: skip
    if done.returncode:
        print(done.stderr[-4000:], file=sys.stderr)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="for all targets together (5)")
    parser.add_argument("--only", action="append", choices=NAMES, help="this target; may be repeated")
    parser.add_argument("--out", type=Path, help="where inputs are collected; without it, only failing ones are kept")
    chosen = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: use `make fuzz`, or install it with pip", file=sys.stderr)
        return 3
    names = chosen.only or NAMES
    place = chosen.out or Path(tempfile.mkdtemp(prefix="brokerbed-fuzz-"))
    print(f"{'target':24}{'executions':>12}{'edges':>10}{'inputs':>10}")
    seconds = max(1, round(chosen.minutes * 60 / len(names)))
    is_well = not [name for name in names if not fuzz(name, seconds, place)]
    print(f"what failed, and the inputs that each target has collected, is in {place}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
