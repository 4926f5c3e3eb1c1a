"""The keys `connectivity` and `arrivals`: what is read of them, and every way to get them wrong."""

import pickle
from pathlib import Path

import jsonschema
import pytest

from brokerbed.orchestrator import run_directory
from brokerbed.scenario import ScenarioError, load, schema

S = 10**9
HEAD = "scenario: 1\nname: x\nclock: {measure: 100s}\ntopology: {tree: line, brokers: 1}\n"  # lines 1 to 4
CONNECTIVITY = "publishers.0.connectivity"
TRACE = f"{CONNECTIVITY}.trace"

KEYS = {
    "with on and off": (
        "rate: 1/s, on: {mean: 1s}, off: {mean: 1s}, connectivity: {trace: a.csv}", CONNECTIVITY,
        "connectivity and on/off do not go together",
    ),
    "with off alone": ("rate: 1/s, off: {mean: 1s}, connectivity: {trace: a.csv}", CONNECTIVITY, "on/off do not go"),
    "with a rate": ("rate: 1/s, arrivals: {trace: b.csv}", "publishers.0.arrivals", "rate and arrivals do not go together"),
    "neither": ("qos: 1", "publishers.0.rate", "is required, as in rate: 1/s; or arrivals"),
    "another order": ("rate: 1/s, connectivity: {trace: a.csv, order: any}", f"{CONNECTIVITY}.order", "'recorded' or 'shuffled'"),
    "no file": ("rate: 1/s, connectivity: {order: recorded}", TRACE, "is required"),
    "no mapping": ("rate: 1/s, connectivity: a.csv", CONNECTIVITY, "must be a mapping like {trace: metro1.csv"),
    "elsewhere": ("rate: 1/s, connectivity: {trace: ../a.csv}", TRACE, "must be a name"),
    "no CSV": ("rate: 1/s, connectivity: {trace: a.txt}", TRACE, "the name of a CSV file beside the scenario"),
    "missing": ("rate: 1/s, connectivity: {trace: none.csv}", TRACE, "none.csv cannot be read beside the scenario: No such"),
    "missing arrivals": ("arrivals: {trace: none.csv}", "publishers.0.arrivals.trace", "none.csv cannot be read"),
}  # fmt: skip

CYCLES = {
    "empty": ("", "a.csv must begin with the line on_s,off_s or duration_s,state"),
    "without header": ("1,2\n", "must begin with the line on_s,off_s or"),
    "other columns": ("on_s,factor\n1,2\n", "must begin with the line on_s,off_s or"),
    "only a header": ("on_s,off_s\n", "a.csv has no rows"),
    "text": ("on_s,off_s\n1,2\n1,long\n", "a.csv, line 3: must be two numbers, the seconds of an ON period"),
    "one column": ("on_s,off_s\n1\n", "a.csv, line 2: must be two numbers"),
    "negative": ("on_s,off_s\n1,2\n\n-1,2\n", "a.csv, line 4: durations must be more than 0"),
    "zero": ("on_s,off_s\n1,0\n", "a.csv, line 2: durations must be more than 0"),
    "nan": ("on_s,off_s\n1,nan\n", "a.csv, line 2: durations must be more than 0"),
    "infinite": ("on_s,off_s\ninf,1\n", "a.csv, line 2: durations must be more than 0"),
    "for ever": ("on_s,off_s\n4e9,1\n4e9,1\n", "a.csv: all periods together must be less than 146 years"),
    "quote": ('on_s,off_s\n"1,2\n', "a.csv, line 2: this is not CSV"),
    "state": ("duration_s,state\n1,on\n1,On\n", "a.csv, line 3: the state must be on or off, not On"),
    "state as number": ("duration_s,state\n1,1\n", "a.csv, line 2: the state must be on or off, not 1"),
    "duration as text": ("duration_s,state\nx,on\n", "a.csv, line 2: must be a duration in seconds and a state"),
    "three": ("duration_s,state\n1,on,off\n", "a.csv, line 2: must be a duration in seconds and a state"),
    "negative duration": ("duration_s,state\n-1,on\n", "a.csv, line 2: durations must be more than 0"),
    "always on": ("duration_s,state\n1,on\n", "a.csv has no off period"),
    "always off": ("duration_s,state\n1,off\n2,off\n", "a.csv has no on period"),
}  # fmt: skip

TIMES = {
    "other column": ("time\n1\n", "b.csv must begin with the line at_s"),
    "text": ("at_s\nnoon\n", "b.csv, line 2: must be a number, a time in seconds"),
    "negative": ("at_s\n-1\n", "b.csv, line 2: times must not be negative"),
    "nan": ("at_s\nnan\n", "b.csv, line 2: times must not be negative"),
    "twice": ("at_s\n1\n1\n", "b.csv, line 3: times must increase; 1 comes after 1"),
    "only zero": ("at_s\n0\n", "b.csv must have a time above 0"),
}


def written(tmp_path: Path, publisher: str, cycles: str = "on_s,off_s\n1,2\n", times: str = "at_s\n1\n") -> Path:
    (tmp_path / "a.csv").write_text(cycles)
    (tmp_path / "b.csv").write_text(times)
    file = tmp_path / "x.yaml"
    file.write_text(f"{HEAD}publishers:\n  - {{id: p, broker: b0, topic: t, {publisher}}}\n")  # line 6
    return file


def check(file: Path, key: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load(file)
    (problem,) = error.value.problems
    assert (problem.line, problem.key) == (6, key)
    assert message in problem.message


@pytest.mark.parametrize(("publisher", "key", "message"), KEYS.values(), ids=KEYS)
def test_mistakes_in_keys(tmp_path: Path, publisher: str, key: str, message: str) -> None:
    check(written(tmp_path, publisher), key, message)


@pytest.mark.parametrize(("cycles", "message"), CYCLES.values(), ids=CYCLES)
def test_mistakes_in_recorded_periods(tmp_path: Path, cycles: str, message: str) -> None:
    check(written(tmp_path, "rate: 1/s, connectivity: {trace: a.csv}", cycles=cycles), TRACE, message)


@pytest.mark.parametrize(("times", "message"), TIMES.values(), ids=TIMES)
def test_mistakes_in_recorded_times(tmp_path: Path, times: str, message: str) -> None:
    check(written(tmp_path, "arrivals: {trace: b.csv}", times=times), "publishers.0.arrivals.trace", message)


@pytest.mark.parametrize(
    ("text", "cycles_s"),
    [
        ("on_s, off_s\n1.5,2\n\n3,4\n", [(1.5, 2), (3, 4)]),
        ("duration_s,state\n1,on\n2,off\n3,on\n4,off\n", [(1, 2), (3, 4)]),
        ("duration_s,state\n1,on\n0.5,on\n2,off\n2,off\n", [(1.5, 4)]),
        ("duration_s,state\n4,off\n1,on\n2,off\n3,on\n", [(1, 2), (3, 4)]),
        ("duration_s,state\n1,on\n2,off\n3,on\n4,off\n5,on\n", [(6, 2), (3, 4)]),
    ],
    ids=["cycles", "states", "neighbours of one state", "off first", "on at both ends"],
)
def test_periods_as_read(tmp_path: Path, text: str, cycles_s: list[tuple[float, float]]) -> None:
    experiment = load(written(tmp_path, "rate: 1/s, connectivity: {trace: a.csv, order: shuffled}", cycles=text))
    (publisher,) = experiment.points[0].publishers
    assert publisher.connectivity is not None
    assert publisher.is_intermittent
    assert publisher.connectivity.is_shuffled
    found = sorted(publisher.connectivity.cycles_ns)
    assert found == sorted((round(on * S), round(off * S)) for on, off in cycles_s)
    assert publisher.connectivity.pass_ns == sum(on + off for on, off in cycles_s) * S


def test_recorded_times_make_the_rate(tmp_path: Path) -> None:
    """Three messages in 4 s, with gaps of 0.5, 0.5 and 3 s: 3 s can be without any, and so can 9 s after two passes."""
    experiment = load(written(tmp_path, "arrivals: {trace: b.csv}", times="at_s\n0.5\n1\n4\n"))
    (publisher,) = experiment.points[0].publishers
    assert publisher.rate == pytest.approx(0.75)
    arrivals = publisher.arrivals
    assert arrivals is not None
    assert arrivals.pass_ns == 4 * S
    fewest = {seconds: arrivals.fewest_within(round(seconds * S)) for seconds in (1, 3, 3.25, 3.75, 4, 9, 11.5)}
    assert fewest == {1: 0, 3: 0, 3.25: 1, 3.75: 2, 4: 3, 9: 6, 11.5: 7}


def test_traces_come_along(tmp_path: Path) -> None:
    """To the run directory, to other processes, and to every point of a sweep; run.json names them."""
    (tmp_path / "given").mkdir()
    file = written(tmp_path / "given", "arrivals: {trace: b.csv}, connectivity: {trace: a.csv}")
    with file.open("a") as text:
        text.write("sweep: {publishers.p.connectivity.order: [recorded, shuffled]}\n")
    experiment = load(file)
    assert sorted(experiment.files) == ["a.csv", "b.csv"]
    folder = run_directory.create(tmp_path / "runs", "x", "virtual", 1, experiment)
    again = load(folder / "scenario.yaml").points
    assert [point.publishers for point in again] == [point.publishers for point in experiment.points]
    (publisher,) = pickle.loads(pickle.dumps(again[1].publishers))
    assert publisher.connectivity.cycles_ns == ((S, 2 * S),)
    plain = run_directory.plain(again[1])["publishers"][0]
    assert plain["connectivity"] == {"trace": "a.csv", "order": "shuffled"}


def test_schema_wants_a_rate_or_arrivals() -> None:
    document = schema()
    publisher = {**document["$defs"]["Publisher"], "$defs": document["$defs"]}
    good = {"id": "p", "broker": "b0", "topic": "t"}
    jsonschema.validate({**good, "rate": "1/s"}, publisher)
    jsonschema.validate({**good, "arrivals": {"trace": "b.csv"}}, publisher)
    for bad in (good, {**good, "rate": "1/s", "arrivals": {"trace": "b.csv"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, publisher)
