"""The `profile` key: what is read of it, and every way to get it wrong."""

from pathlib import Path

import pytest

from brokerbed.orchestrator import run_directory
from brokerbed.scenario import ScenarioError, load
from brokerbed.scenario.profile import Sine, Steps

S = 10**9
HEAD = "scenario: 1\nname: x\nclock: {measure: 100s}\ntopology: {tree: line, brokers: 3}\n"  # lines 1 to 4
SUBSCRIPTIONS = HEAD + "subscriptions:\n  mean_active: 10\n  lifetime: {mean: 5s}\n"  # lines 5 to 7
SINE = "{sine: {period: 20s, amplitude: 0.5}}"
AT = "{broker: b1, class: 0, population: {size: 2, on: {mean: 1s}, off: {mean: 1s}}}"
TEN_SECONDS = "{mean_active: 5, lifetime: {mean: 5s}, profile: {steps: [[0s, 1]], period: 10s}}"
STEPS = "subscriptions.profile.steps"
TRACE = "subscriptions.profile.trace"

MISTAKES = {
    "no mapping": ("5", 8, "subscriptions.profile", "must be a mapping like {sine: "),
    "nothing in it": ("{period: 20s}", 8, "subscriptions.profile", "exactly one of sine, steps and trace"),
    "two kinds": (
        "{sine: {period: 20s, amplitude: 0.5}, trace: rates.csv}", 8, "subscriptions.profile", "exactly one of",
    ),
    "unknown kind": ("{sin: {period: 20s}}", 8, "subscriptions.profile.sin", "did you mean sine?"),
    "sine without period": ("{sine: {amplitude: 0.5}}", 8, "subscriptions.profile.sine.period", "is required"),
    "sine with the period outside": (
        "{sine: {period: 20s, amplitude: 0.5}, period: 20s}", 8, "subscriptions.profile.period", "of a sine is given in it",
    ),
    "amplitude above 1": (
        "{sine: {period: 20s, amplitude: 1.5}}", 8, "subscriptions.profile.sine.amplitude",
        "less than or equal to 1, not 1.5",
    ),
    "negative amplitude": (
        "{sine: {period: 20s, amplitude: -0.5}}", 8, "subscriptions.profile.sine.amplitude", "greater than or equal to 0",
    ),
    "amplitude as text": (
        "{sine: {period: 20s, amplitude: big}}", 8, "subscriptions.profile.sine.amplitude", "must be a valid number",
    ),
    "steps without period": ("{steps: [[0s, 1]]}", 8, "subscriptions.profile.period", "is required with steps or a trace"),
    "no steps": ("{steps: [], period: 20s}", 8, STEPS, "must be a list of times and factors"),
    "steps as a number": ("{steps: 3, period: 20s}", 8, STEPS, "must be a list of times and factors"),
    "a step that is no pair": ("{steps: [[0s, 1], [5s]], period: 20s}", 8, STEPS, "each step must be a time and a factor"),
    "a step without a unit": ("{steps: [[0s, 1], [5, 3]], period: 20s}", 8, STEPS, "must be a duration like 60s"),
    "negative factor": ("{steps: [[0s, 1], [5s, -3]], period: 20s}", 8, STEPS, "a number from 0 to 1000000, not -3"),
    "factor as text": ("{steps: [[0s, 1], [5s, high]], period: 20s}", 8, STEPS, "a number from 0 to 1000000, not high"),
    "infinite factor": ("{steps: [[0s, .inf]], period: 20s}", 8, STEPS, "a number from 0 to 1000000, not inf"),
    "no factor above 0": ("{steps: [[0s, 0], [5s, 0]], period: 20s}", 8, STEPS, "needs a factor above 0"),
    "steps out of order": ("{steps: [[5s, 1], [0s, 3]], period: 20s}", 8, STEPS, "in order of time; 0s comes after 5s"),
    "a step twice": ("{steps: [[5s, 1], [5s, 3]], period: 20s}", 8, STEPS, "in order of time; 5s comes after 5s"),
    "a step beyond the period": (
        "{steps: [[0s, 1], [20s, 3]], period: 20s}", 8, STEPS, r"a point at 20s, which is not before the end of the period",
    ),
    "trace without period": ("{trace: rates.csv}", 8, "subscriptions.profile.period", "is required with steps or a trace"),
    "trace elsewhere": ("{trace: ../rates.csv, period: 20s}", 8, TRACE, "must be a name"),
    "trace that is no CSV": ("{trace: scenario.yaml, period: 20s}", 8, TRACE, "the name of a CSV file beside the scenario"),
    "trace missing": ("{trace: none.csv, period: 20s}", 8, TRACE, "none.csv cannot be read beside the scenario: No such"),
    "period too long": ("{sine: {period: 101s, amplitude: 0.5}}", 3, "clock.measure", r"one period of subscriptions.profile \(101s\)"),
}  # fmt: skip

TRACES = {
    "empty": ("", "must begin with the line at_s,factor"),
    "without header": ("0,1\n5,3\n", "must begin with the line at_s,factor"),
    "only a header": ("at_s,factor\n", "rates.csv has no rows below its header"),
    "not numeric": ("at_s,factor\n0,1\n5,high\n", "rates.csv, line 3: must be two numbers"),
    "three columns": ("at_s,factor\n0,1,2\n", "rates.csv, line 2: must be two numbers"),
    "negative time": ("at_s,factor\n-1,1\n", "rates.csv, line 2: times must not be negative"),
    "negative factor": ("at_s,factor\n0,-1\n", "rates.csv, line 2: times must not be negative, and factors"),
    "nan": ("at_s,factor\n0,nan\n", "rates.csv, line 2: times must not be negative, and factors"),
    "out of order": ("at_s,factor\n5,1\n0,2\n", "rates.csv must be in order of time; 0s comes after 5s"),
    "beyond the period": ("at_s,factor\n0,1\n20,2\n", "rates.csv has a point at 20s"),
    "too long": ("at_s,factor\n" + "".join(f"{i / 1000},1\n" for i in range(10_001)), "has 10001 rows; at most 10000"),
    "too large": ("at_s,factor\n" + "\n" * 2**20, "more than 1048576 bytes"),
    "binary": (b"\xff\xfe\x00", "rates.csv is not a text file in UTF-8"),
}


def loaded(tmp_path: Path, text: str, trace: str | bytes = "") -> Path:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    (tmp_path / "rates.csv").write_bytes(trace if isinstance(trace, bytes) else trace.encode())
    return file


@pytest.mark.parametrize(("profile", "line", "key", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_placed_and_explained(tmp_path: Path, profile: str, line: int, key: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as error:
        load(loaded(tmp_path, f"{SUBSCRIPTIONS}  profile: {profile}\n"))
    (problem,) = error.value.problems
    assert (problem.line, problem.key) == (line, key)


@pytest.mark.parametrize(("trace", "message"), TRACES.values(), ids=TRACES)
def test_traces_that_cannot_be_used(tmp_path: Path, trace: str | bytes, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as error:
        load(loaded(tmp_path, f"{SUBSCRIPTIONS}  profile: {{trace: rates.csv, period: 20s}}\n", trace))
    (problem,) = error.value.problems
    assert (problem.line, problem.key) == (8, TRACE)


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        (
            f"subscriptions: {{population: {{size: 2, on: {{mean: 1s}}, off: {{mean: 1s}}}}, profile: {SINE}}}", 5,
            "subscriptions.profile", "profile and population exclude each other",
        ),
        (
            f"subscriptions: {{at: [{AT}], profile: {SINE}}}", 5,
            "subscriptions.profile", r"profile and a population \(at b1\) exclude each other",
        ),
        (
            f"subscriptions: {{static: {{count: 1, place: best}}, profile: {SINE}}}", 5, "subscriptions.profile",
            "profile and static exclude each other",
        ),
        (
            f"subscriptions: {{mean_active: 2, lifetime: {{mean: 1s}}, roam: 0.5, profile: {SINE}}}", 5,
            "subscriptions.profile", "profile and roam exclude each other",
        ),
        (f"subscriptions: {{profile: {SINE}}}", 5, "subscriptions.profile", "a profile needs subscriptions that arrive"),
        (f"publications: {{profile: {SINE}}}", 5, "publications.profile", "a profile needs a rate"),
        (
            f"publications: {{rate: 1/s, profile: {SINE}}}\nsubscriptions: {TEN_SECONDS}", 5,
            "publications.profile", r"the same period as subscriptions.profile \(10s\), not 20s",
        ),
        (
            "publications: {rate: 1/s, profile: {steps: [[0s, 1]], period: 3h}}", 3, "clock.measure",
            r"one period of publications.profile \(10800s\)",
        ),
    ],
    ids=["population", "population of one broker", "static", "roam", "nothing arrives", "nothing is published", "two periods", "period of publications"],
)  # fmt: skip
def test_profiles_go_with_the_rest(tmp_path: Path, text: str, line: int, key: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as error:
        load(loaded(tmp_path, HEAD + text))
    (problem,) = error.value.problems
    assert (problem.line, problem.key) == (line, key)


def test_profiles_as_read(tmp_path: Path) -> None:
    trace = "at_s, factor\n2.5,1\n\n10,3\n"
    text = (
        f"{SUBSCRIPTIONS}  profile: {{trace: rates.csv, period: 20s}}\npublications: {{rate: 1/s, profile: {SINE}}}\n"
    )
    experiment = load(loaded(tmp_path, text, trace))
    (scenario,) = experiment.points
    assert scenario.publications.profile == Sine(20 * S, 0.5)
    steps = scenario.subscriptions.profile
    assert steps == Steps(20 * S, (2_500_000_000, 10 * S), (1.0, 3.0), "rates.csv")
    assert scenario.period_ns == 20 * S
    assert experiment.files == ["rates.csv"]
    assert [steps.at(time * S) for time in (-1, 0, 2.4, 2.5, 9.9, 10, 19, 22.4, 22.5)] == [3, 3, 3, 1, 1, 3, 3, 3, 1]
    assert steps.mean == pytest.approx((7.5 + 3 * 12.5) / 20)
    assert steps.integral_ns(45 * S) == pytest.approx((2 * 45 + 2.5 * 3 + 2.5) * S), "two periods and 5 s"
    assert scenario.subscriptions.mean_active(range(1)) == pytest.approx(10 * 45 / 20)
    assert scenario.publications.mean_rate_per_s(range(1)) == pytest.approx(1.0)


def test_run_directory_has_what_its_scenario_needs(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    text = f"{SUBSCRIPTIONS}  profile: {{trace: rates.csv, period: 20s}}\n"
    experiment = load(loaded(tmp_path / "given", text, "at_s,factor\n0,1\n"))
    folder = run_directory.create(tmp_path / "runs", "x", "virtual", 1, experiment)
    assert load(folder / "scenario.yaml").points == experiment.points
    assert run_directory.plain(experiment.points[0])["subscriptions"]["profile"]["factors"] == [1.0]
