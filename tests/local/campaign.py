"""Running brokers against theory: `python -m tests.local.campaign`, `make local-campaign`. Exit code 1 if one differs.

Each case is a scenario on the local ground (or with `--on docker` in containers), run and analysed by the installed
command. `--only` chooses by name. Measure on a machine that does nothing else: what is late is multiplied by the
speed-up. The memory is that of all processes that are there for the brokers and clients, the engine's own included.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from tests.broker.running import COMMAND

COMMUTE = Path(__file__).parents[2] / "scenarios" / "bouloukakis2017" / "commute.csv"
RATES = ("table.remote_entries", "table.local_entries", "rate.notifications", "rate.control")
RUN_S_MAX = 3600
PROCESSES = (
    "brokerbed.broker.runtime.command",
    "brokerbed.clients.process",
    "containerd-shim",
    "fuse-overlayfs",
)  # the latter of an engine


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    within: float  # of the expected value; 0: only the invariants count
    metrics: tuple[str, ...] = ("delay.end_to_end",)
    expected: float | None = None  # instead of the prediction


def tree(routing: str) -> str:
    return f"""
scenario: 1
name: fifteen-{routing}
clock: {{warmup: 60s, measure: 3000s, speedup: 20}}
topology: {{tree: regular, arity: 2, depth: 4}}
routing: {routing}
classes: 20
subscriptions: {{mean_active: 60, lifetime: {{mean: 20s}}}}
publications: {{rate: 10/s}}
durability: memory
"""


def table3(rate: float, publisher: str, subscriber: str, clock: str, copies: int) -> str:
    """Three brokers on the path, 62.5 ms of service everywhere."""
    return f"""
scenario: 1
name: table3
clock: {{{clock}}}
topology: {{tree: star, brokers: 3}}
service: {{broker_in: {{mean: 62.5ms}}, link: {{mean: 62.5ms}}}}
publishers:
  - {{id: p, broker: b1, topic: t, rate: {rate}/s, {publisher}, service: {{mean: 62.5ms}}}}
subscribers:
  - {{id: s, broker: b2, topic: t, {subscriber}, session_service: {{mean: 62.5ms}}, service: {{mean: 62.5ms}}}}
copies: {copies}
limits: {{messages: 1000000, bytes: 1GB}}
durability: memory
"""


def centre(rate: float, measure_s: int, copies: int) -> str:
    """The ON/OFF centre alone, T = 20 s, D = 0.125 s."""
    return f"""
scenario: 1
name: centre
clock: {{warmup: 400s, measure: {measure_s}s, speedup: 10}}
topology: {{tree: line, brokers: 1}}
publishers: [{{id: p, broker: b0, topic: t, rate: {rate}/s}}]
subscribers:
  - {{id: s, broker: b0, topic: t, on: {{mean: 20s}}, off: {{mean: 20s}}, session_service: {{mean: 125ms}}}}
copies: {copies}
limits: {{messages: 1000000, bytes: 1GB}}
durability: memory
"""


def expiry(law: str, copies: int) -> str:
    """The same with messages that live for 3 s, as long as an ON or OFF period lasts on average."""
    return f"""
scenario: 1
name: expiry
clock: {{warmup: 30s, measure: 600s, speedup: 2}}
topology: {{tree: line, brokers: 1}}
publishers: [{{id: p, broker: b0, topic: t, rate: 1.3/s, expiry: {{mean: 3s, law: {law}}}}}]
subscribers:
  - {{id: s, broker: b0, topic: t, on: {{mean: 3s}}, off: {{mean: 3s}}, session_service: {{mean: 150ms}}}}
copies: {copies}
peers: light
durability: memory
tolerance: 3%
"""


RECORDED = f"""
scenario: 1
name: recorded
clock: {{warmup: 2000s, measure: 19740s, speedup: 60}}
topology: {{tree: line, brokers: 1}}
publishers: [{{id: p, broker: b0, topic: t, rate: 0.3/s}}]
subscribers:
  - {{id: s, broker: b0, topic: t, connectivity: {{trace: {COMMUTE.name}}}, session_service: {{mean: 1250ms}}}}
copies: 50
peers: light
durability: memory
tolerance: 3%
"""  # the trace takes 9870 s

FIGURE3 = """
scenario: 1
name: figure3
clock: {warmup: 60s, measure: 1500s, speedup: 20}
topology: {tree: levels, brokers: 127, width: 8}
classes: 1000
subscriptions: {mean_active: 1000, lifetime: {mean: 60s}}
durability: memory
"""


def fire(measure_s: int, brokers_deep: int = 4) -> str:
    """QoS 1 under fire: 200 publications a second, a crash every 5 s and a cut every 7 s on average."""
    places = [f"b{number}" for number in range(2**brokers_deep - 1)]
    publishers = [
        f"  - {{id: p{n}, broker: {places[(3 * n + 1) % len(places)]}, topic: f/{n}, rate: 20/s}}" for n in range(10)
    ]
    subscribers = [
        f"  - {{id: s{n}, broker: {places[(5 * n + 2) % len(places)]}, topic: {topic}}}"
        for n, topic in enumerate([*(f"f/{n}" for n in range(10)), "f/+"])
    ]
    return "\n".join([
        "scenario: 1", "name: fire", f"clock: {{measure: {measure_s}s}}",
        f"topology: {{tree: regular, arity: 2, depth: {brokers_deep}}}",
        "publishers:", *publishers, "subscribers:", *subscribers,
        "faults:", "  - {every: {mean: 5s}, crash: any, for: {mean: 1s}}", "  - {every: {mean: 7s}, cut: any, for: {mean: 1s}}",
        "",
    ])  # fmt: skip


def cases(on: str) -> list[Case]:
    copies = 120 if on == "docker" else 250  # two cores were not enough for 250 in containers
    slow = "speedup: 10, warmup: {}s, measure: {}s".format
    return [
        *(Case(f"15 brokers, {it}", tree(it), 0.03, RATES) for it in ("identity", "simple", "flooding")),
        Case("127 brokers, figure 3", FIGURE3, 0.03, ("table.remote_entries",)),
        Case("fire", fire(180 if on == "docker" else 120), 0),
        Case("degraded", table3(2, "on: {mean: 1s}, off: {mean: 1s}", "on: {mean: 1.5s}, off: {mean: 1.5s}",
                                "speedup: 2, warmup: 20s, measure: 600s", 100) + "tolerance: 5%\n", 0.05),
        *(Case(f"expiry, {law}", expiry(law, copies), 0.03, ("delay.end_to_end", "delivery.ratio"))
          for law in ("deterministic", "exponential")),
        Case("recorded trace", RECORDED, 0.03),
        Case("centre, 1/s", centre(1, 3700, 400), 0.03),
        Case("centre, 2/s", centre(2, 4200, 200), 0.05),
        Case("centre, 3/s", centre(3, 4000, 100), 0.10),
        Case("metro 1", table3(1, "on: {mean: 109s}, off: {mean: 121.5s}", "on: {mean: 146.3s}, off: {mean: 96s}",
                               slow(1500, 7600), copies), 0.05, expected=120.2),
        Case("metro 2", table3(1, "on: {mean: 292.1s}, off: {mean: 78.7s}", "on: {mean: 155.8s}, off: {mean: 72.1s}",
                               slow(1500, 7600), copies), 0.05, expected=44.8),
    ]  # fmt: skip


@dataclass(frozen=True)
class Ended:
    code: int
    told: dict[str, Any]  # as it printed it
    peak_mb: float  # the most memory that all processes had together (PSS)
    up_s: float  # until all brokers were up and linked


def run(case: Case, folder: Path, on: str) -> Ended:
    file = folder / "case.yaml"
    file.write_text(case.text, encoding="utf-8")
    shutil.copy(COMMUTE, folder)
    command = [str(COMMAND), "run", str(file), "--on", on, "--out", str(folder / "runs"), "--json"]
    over, peak = Event(), [0.0]
    process = subprocess.Popen([*command, "--allow-inconclusive"], stdout=subprocess.PIPE, text=True)
    watcher = Thread(target=_watch_memory, args=(over, peak), daemon=True)
    watcher.start()
    out, _ = process.communicate(timeout=RUN_S_MAX)
    over.set()
    watcher.join()
    file = folder / "runs" / "latest" / "run.json"
    testbed = json.loads(file.read_text()).get("testbed") or {} if file.exists() else {}
    return Ended(process.returncode, json.loads(out or "{}"), peak[0], testbed.get("brokers_up_s", 0.0))


def _watch_memory(over: Event, peak: list[float]) -> None:
    while not over.wait(5.0):
        peak[0] = max(peak[0], sum(map(_pss_mb, _processes())))


def _processes() -> Iterator[int]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                line = (place / "cmdline").read_text(errors="replace")
                if any(word in line for word in PROCESSES) and "brokerbed.entry" not in line:
                    yield int(place.name)


def _pss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def differences(case: Case, told: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """A line per figure, and whether it is as it should be."""
    for row in told.get("metrics", []):
        is_headline = not row["labels"] or "publisher" in row["labels"]
        if row["metric"] not in case.metrics or not is_headline or not case.within:
            continue
        expected = row["predicted"] if case.expected is None else case.expected
        error = row["measured"] / expected - 1 if expected else row["measured"]
        half = (row["ci_high"] - row["ci_low"]) / 2 / row["measured"] if row["measured"] else 0.0
        figures = f"{row['measured']:12.4f} {half:8.2%} {expected:12.4f} {error:+8.2%}"
        text = f"{row['metric']:<30} {figures}  {row['verdict']}"
        yield text, abs(error) <= case.within
    for it in told.get("invariants", []):
        yield f"{it['name']:<40} {it['checked']:>12}", it["holds"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.campaign", description=__doc__)
    parser.add_argument("--only", action="append", help="cases whose name has this in it; may be given several times")
    parser.add_argument("--on", default="local", choices=("local", "docker"))
    given = parser.parse_args()
    wrong = 0
    for case in cases(given.on):
        if given.only is not None and not any(it in case.name for it in given.only):
            continue
        begun = time.monotonic()
        with TemporaryDirectory(prefix="brokerbed-campaign-") as folder:
            ended = run(case, Path(folder), given.on)
        lines = list(differences(case, ended.told))
        is_fine = ended.code in (0, 1) and bool(lines) and all(fine for _, fine in lines)
        wrong += not is_fine
        print(
            f"{case.name} on {given.on}: {time.monotonic() - begun:.0f} s, exit code {ended.code},"
            f" brokers up after {ended.up_s:.1f} s, {ended.peak_mb:.0f} MB",
            flush=True,
        )
        for text, fine in lines:
            print(f"  {text}  {'' if fine else 'WRONG'}", flush=True)
    print(f"{wrong} of these differ" if wrong else "all as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
