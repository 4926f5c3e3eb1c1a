"""Run directories made by hand, as an analysis leaves them: measured is what was predicted, times a known factor."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from brokerbed.analysis.assumptions import Assumption
from brokerbed.analysis.faults import Fault
from brokerbed.analysis.invariants import Invariant
from brokerbed.analysis.jobs.analyse import Analysis, Point, write
from brokerbed.analysis.predict import predict
from brokerbed.analysis.runs import Finished, Run
from brokerbed.analysis.series import Sample
from brokerbed.analysis.verdicts import Measured, compare
from brokerbed.metrics import Row
from brokerbed.orchestrator.run_directory import describe
from brokerbed.scenario import Scenario, load

S = 1_000_000_000
FAULTED = """
scenario: 1
name: faulted
clock: {warmup: 10s, measure: 90s}
topology: {tree: regular, arity: 2, depth: 3}
classes: 5
subscriptions: {mean_active: 20, lifetime: {mean: 5s}}
publications: {rate: 10/s}
publishers:
  - {id: p, broker: b3, topic: "a<b>&c/x", rate: 1/s, on: {mean: 5s}, off: {mean: 5s}, service: {mean: 10ms}}
subscribers:
  - {id: s, broker: b6, topic: "a<b>&c/x", on: {mean: 5s}, off: {mean: 5s}, session_service: {mean: 10ms}}
faults:
  - {at: 30s, cut: [b1, b3], for: 10s}
  - {at: 60s, crash: b2, for: 5s}
tolerance: 5%  # <script>alert(1)</script>
"""
SWEEP = """
scenario: 1
name: muehl2009-fig3
clock: {warmup: 60s, measure: 600s}
topology: {tree: levels, brokers: 127, width: 8}
classes: 1000
subscriptions: {mean_active: 1000, lifetime: {mean: 60s}}
publications: {rate: 1000/s}
sweep:
  topology.width: [1, 2, 4, 8, 16, 32, 64]
  subscriptions.mean_active: [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 30000, 50000, 70000, 100000, 150000,
                              200000, 300000, 500000, 700000]
"""
TRACED = """
scenario: 1
name: traced
clock: {warmup: 100s, measure: 20000s}
topology: {tree: star, brokers: 1}
publishers: [{id: p, broker: b0, topic: t, rate: 0.3/s}]
subscribers:
  - {id: s, broker: b0, topic: t, connectivity: {trace: commute.csv, order: recorded}, session_service: {mean: 1250ms}}
"""
COMMUTE = Path(__file__).parents[2] / "scenarios" / "bouloukakis2017" / "commute.csv"
SMALL_SWEEP = """
scenario: 1
name: small
clock: {measure: 60s}
topology: {tree: levels, brokers: 7, width: 2}
classes: 10
subscriptions: {mean_active: 10, lifetime: {mean: 6s}}
publications: {rate: 10/s}
sweep: {routing: [identity, flooding], subscriptions.mean_active: [10, 100, 1000]}
"""


def near(_: Row) -> float:
    """One percent above the prediction."""
    return 1.01


def exact(_: Row) -> float:
    return 1.0


def made(
    folder: Path,
    text: str,
    factor: Callable[[Row], float] = near,
    samples: Iterable[Sample] = (),
    offenders: tuple[str, ...] = (),
    files: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """A finished and analysed run directory, without a log. `files` are what the scenario needs beside it."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    experiment = load(folder / "scenario.yaml")
    points = []
    for number, scenario in enumerate(experiment.points):
        place = folder / "points" / str(number) if experiment.is_sweep else folder
        place.mkdir(parents=True, exist_ok=True)
        describe(place, scenario, "virtual", 0.0, 1.5)
        points.append(_point(number, place, scenario, factor, offenders))
    runs = tuple(run for point in points for run in point.runs)
    write(Analysis(Finished(folder, experiment, runs), tuple(points), tuple(samples)))
    return folder


def _point(
    number: int, place: Path, scenario: Scenario, factor: Callable[[Row], float], offenders: tuple[str, ...]
) -> Point:
    prediction = predict(scenario)
    rows = []
    for row in prediction.rows:
        value = (row.predicted or 0.0) * factor(row)
        rows.append(compare(row, Measured(value, value * 0.97, value * 1.03), scenario.tolerance.of(row.metric)))
    begin_ns, end_ns = scenario.clock.warmup, scenario.clock.warmup + scenario.clock.measure
    run = Run(number, number, place, scenario, "virtual", 1.0, 1.5, (begin_ns, end_ns), ())
    invariants = (
        Invariant("no_acknowledged_message_lost", 10, len(offenders), offenders),
        Invariant("tables_right_at_end", 3, 0, ()),
    )
    names = (
        "publications are Poisson",
        "subscriptions arrive as a Poisson process",
        "load generators keep their rates",
    )
    assumptions = tuple(
        Assumption(name, broker, 0.4 if broker != "b5" else 0.0001, broker != "b5")
        for name in names
        for broker in scenario.tree.names
    )
    faults = tuple(
        Fault(number, place, what, struck * S, True, healed * S, healed * S)
        for place, (what, struck, healed) in enumerate((("cut b1-b3", 30, 40), ("crash b2", 60, 65)))
    )
    return Point((run,), prediction, tuple(rows), invariants, assumptions, faults if scenario.faults else (), 85.0)


def faulted_samples() -> list[Sample]:
    """A rate that falls to zero while b2 is dead; p is there all the time, s for a third of it."""
    rates = [Sample(0, "rate.notifications", "", x + 0.5, 0.0 if 60 <= x < 65 else 20.0) for x in range(100)]
    delays = [Sample(0, "delay", "p -> s", x, y) for x, y in ((0.1, 1.0), (1.0, 0.5), (10.0, 0.01), (20.0, 0.0))]
    peers = [
        Sample(0, "seen", "p", None, 100.0), Sample(0, "on", "p", 0.0, 100.0),
        Sample(0, "seen", "s", None, 100.0), Sample(0, "on", "s", 0.0, 20.0), Sample(0, "on", "s", 50.0, 63.0),
    ]  # fmt: skip
    faults = [Sample(0, "fault", "cut b1-b3", 30.0, 40.0), Sample(0, "fault", "crash b2", 60.0, 65.0)]
    return [*rates, *delays, *peers, *faults, Sample(0, "left_out", "", 30.0, 42.0)]
