"""`brokerbed new`: the scenarios that it writes load, are predicted, and are long enough; mistakes are one sentence."""

import re
from pathlib import Path

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.cli import dispatch
from brokerbed.draft import OFF_S, OFFLINE, ON_S, TREES, Draft
from brokerbed.scenario import load
from brokerbed.scenario.units import NS_PER_S


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draft(
    tree: str = "levels", brokers: int = 7, clients: int = 20, rate_per_s: float = 1.0, offline: str = "nobody",
    tolerance: float = 0.1,
) -> Draft:  # fmt: skip
    return Draft("draft", tree, brokers, clients, rate_per_s, offline, tolerance)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("brokers", [1, 3, 7])
def test_scenario_loads_and_has_a_prediction_of_every_row(tmp_path: Path, tree: str, brokers: int) -> None:
    for offline in OFFLINE:
        (tmp_path / "draft.yaml").write_text(draft(tree, brokers, offline=offline).text())
        (scenario,) = load(tmp_path / "draft.yaml").points
        prediction = predict(scenario, detail=False)
        assert len(scenario.tree) == brokers
        assert all(row.predicted is not None for row in prediction.rows)
        assert (prediction.unstable, prediction.notes) == ((), ())
        assert scenario.publishers[0].is_intermittent == (offline in ("publishers", "both"))
        assert scenario.subscribers[0].is_intermittent == (offline in ("subscribers", "both"))


def test_clients_are_at_leaves_that_are_far_from_one_another() -> None:
    assert draft("levels", 7).ends == ("b3", "b6")
    assert draft("star", 5).ends == ("b1", "b4")
    assert draft("line", 4).ends == ("b3", "b0")
    assert draft("star", 1).ends == ("b0", "b0")


def test_length_is_that_of_so_many_events_without_offline_clients() -> None:
    """A fifth of 10% is the relative standard error of 2500 Poisson events, 20 of which happen in a second."""
    assert draft().measure_s == pytest.approx(125, rel=0.06)
    assert draft(clients=10).measure_s == pytest.approx(250, rel=0.06)
    assert draft(tolerance=0.05).measure_s == pytest.approx(500, rel=0.06)
    assert draft(rate_per_s=10).measure_s == 60  # no run is shorter


def test_length_grows_where_clients_go_offline() -> None:
    """It is in inverse proportion to the number of clients."""
    assert draft().measure_s < draft(offline="both").measure_s
    twenty, one = (draft(offline="subscribers", clients=clients).measure_s for clients in (20, 1))
    assert draft().measure_s < twenty
    assert one == pytest.approx(20 * twenty, rel=0.08)


def test_predicted_delay_is_that_of_a_message_that_finds_the_client_offline(tmp_path: Path) -> None:
    """OFF periods are uniform on [0, 40 s]: a message waits E[OFF^2] / 2 / (ON + OFF) on average, and then for the queues."""
    (tmp_path / "draft.yaml").write_text(draft(offline="subscribers").text())
    (scenario,) = load(tmp_path / "draft.yaml").points
    (delay,) = [row.predicted for row in predict(scenario).rows if row.metric == "delay.end_to_end"]
    waits = (2 * OFF_S) ** 2 / 3 / 2 / (ON_S + OFF_S)
    assert delay is not None
    assert waits < delay < 1.3 * waits


def test_command_writes_what_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--brokers", "5", "--tree", "star", "--clients", "4", "--rate", "30/min", "--offline", "both",
                 "--tolerance", "20%"]  # fmt: skip
    assert dispatch(["new", "my.yaml", *arguments]) == 0
    said = capsys.readouterr()
    assert said.out == "my.yaml\n"
    assert "of model time; brokerbed run my.yaml --on virtual runs it" in said.err
    (scenario,) = load(tmp_path / "my.yaml").points
    assert (scenario.name, len(scenario.tree), scenario.copies) == ("my", 5, 4)
    assert (scenario.publishers[0].rate, scenario.tolerance.of("rate.total"), scenario.tolerance.of("delay.x")) == (
        0.5, 0.2, 0.4,
    )  # fmt: skip
    assert scenario.clock.measure == NS_PER_S * Draft("my", "star", 5, 4, 0.5, "both", 0.2).measure_s
    comments = [line for line in (tmp_path / "my.yaml").read_text().splitlines() if line.startswith("#")]
    assert len(comments) >= 10


def test_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scenario.yaml").write_text("mine")
    assert dispatch(["new"]) == 2
    assert capsys.readouterr().err.startswith("brokerbed: scenario.yaml exists already; ")
    assert (tmp_path / "scenario.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--tree", "bush"], "--tree: must be one of levels, line, star, regular, not bush"),
        (["--brokers", "0"], "--brokers: must be a number from 1 to 100000, not 0"),
        (["--brokers", "many"], "--brokers: must be a number from 1 to 100000, not many"),
        (["--brokers", "6", "--tree", "regular"], "--brokers: a regular tree has 1, 3, 7, 15, 31, ... brokers, not 6"),
        (["--clients", "-1"], "--clients: must be a number from 1 to 100000, not -1"),
        (["--rate", "fast"], "--rate: must be a rate like 3/s, 20/min or 1/h, not fast"),
        (["--rate", "0/s"], "--rate: must be at least 1/h"),
        (["--offline", "everybody"], "--offline: must be one of nobody, publishers, subscribers, both, not everybody"),
        (["--tolerance", "0%"], "--tolerance: must be between 0.1% and 45%, not 0%"),
        (["there/my.yaml"], "there/my.yaml: there is no folder there; make it first"),
        (
            ["my scenario.yaml"],
            "my scenario.yaml: name: must be a name of 1 to 64 letters, digits, - _ and ., not my scenario",
        ),
    ],
)
def test_mistake_is_one_sentence_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    assert dispatch(["new", *arguments]) == 2
    assert capsys.readouterr().err == f"brokerbed: {error}\n"
    assert list(tmp_path.iterdir()) == []


def test_terminal_is_asked_until_answers_make_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["bush", "line", "3", "2", "2/s", "", "15%"])
    asked: list[str] = []

    def prompt(question: str, default: str) -> str:
        asked.append(question)
        return next(answers) or default

    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", prompt)
    assert dispatch(["new", "asked.yaml"]) == 0
    (scenario,) = load(tmp_path / "asked.yaml").points
    assert (len(scenario.tree), scenario.copies, scenario.publishers[0].rate) == (3, 2, 2.0)
    assert (scenario.publishers[0].on, scenario.tolerance.default) == (None, 0.15)
    assert len(asked) == 7
    assert re.match("Tree of brokers", asked[0])
