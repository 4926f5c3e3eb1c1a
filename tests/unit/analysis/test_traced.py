"""Predictions of peers with traces along a path, what the audit tests of them, and what the report says."""

from collections.abc import Callable
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from brokerbed.analysis.assumptions import Assumption
from brokerbed.analysis.jobs.audit import Counts, _of_run
from brokerbed.analysis.predict import Prediction, predict
from brokerbed.analysis.runs import Run
from brokerbed.analysis.tallies import MESSAGES, PUBLICATIONS, SUBSCRIPTIONS
from brokerbed.analysis.transforms.connections import QUANTILES
from brokerbed.scenario import load
from brokerbed.scenario.units import NS_PER_S
from tests.unit.analysis.recorded_truth import Floats, departures, shuffled

HEAD = "scenario: 1\nname: x\nclock: {warmup: 10s, measure: 1000s}\ntopology: {tree: line, brokers: 2}\ncopies: 20\n"
SHUFFLED = "connectivity: {trace: a.csv, order: shuffled}"
BROKERS = "service: {broker_in: {mean: 100ms}}"
ALWAYS = "{id: p, broker: b1, topic: t, rate: 1/s}"
CALLS = "{id: p, broker: b1, topic: t, arrivals: {trace: b.csv}}"
TRACED = "connectivity: {trace: a.csv}"
S1 = f"{{id: s, broker: b0, topic: t, {TRACED}, session_service: {{mean: 250ms}}}}"
QUICK = "{id: s, broker: b0, topic: t, service: {mean: 100ms}}"
NO_SERVICE = f"{{id: s, broker: b0, topic: t, {TRACED}}}"
Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(publisher: str, subscriber: str, more: str = "") -> Path:
        (tmp_path / "a.csv").write_text("on_s,off_s\n1,2\n3,6\n")
        (tmp_path / "b.csv").write_text("at_s\n1\n1.1\n4\n")
        file = tmp_path / "x.yaml"
        file.write_text(f"{HEAD}publishers: [{publisher}]\nsubscribers: [{subscriber}]\n{more}")
        return file

    return write


def predicted(file: Path) -> Prediction:
    return predict(load(file).points[0])


def test_poisson_stages_before_a_recorded_session_add_up(written: Written) -> None:
    """Burke: the output of M/M/1 is Poisson. Input and link: .1 / (1 - .1) s each; two inputs and one link."""
    alone = predicted(written(ALWAYS, S1)).ways[0].end_to_end_s
    service = "service: {broker_in: {mean: 100ms}, link: {mean: 100ms}}\n"
    assert predicted(written(ALWAYS, S1, service)).ways[0].end_to_end_s == pytest.approx(alone + 3 / 9)


@pytest.mark.parametrize(
    ("publisher", "subscriber", "more"),
    [
        (ALWAYS[:-1] + f", {TRACED}, service: {{mean: 100ms}}}}", S1, ""),
        (ALWAYS[:-1] + f", {TRACED}, service: {{mean: 10ms, law: uniform}}}}", QUICK, ""),
        (ALWAYS[:-1] + f", {TRACED}}}", "{id: s, broker: b0, topic: t}", "model: algorithm1\nservice: {broker_in: {mean: 100ms}}"),
        (ALWAYS, S1.replace("250ms", "250ms, law: deterministic"), ""),
        (CALLS, S1, ""),
        (CALLS, "{id: s, broker: b0, topic: t, session_service: {mean: 100ms}}", ""),
        (CALLS[:-1] + ", service: {mean: 100ms}}", "{id: s, broker: b0, topic: t}", ""),
        (CALLS, "{id: s, broker: b0, topic: t}", "service: {broker_in: {mean: 100ms}}"),
    ],
    ids=["two traces", "behind uniform service", "Algorithm 1", "deterministic service", "calls to a session", "calls to a plain session", "calls of a slow publisher",
         "calls to brokers"],
)  # fmt: skip
def test_what_has_no_model_has_a_reason(written: Written, publisher: str, subscriber: str, more: str) -> None:
    found = predicted(written(publisher, subscriber, more))
    assert isnan(found.ways[0].end_to_end_s)
    assert any(note.startswith("there is no model of") for note in found.notes)
    assert not found.unstable


@pytest.mark.parametrize(
    ("publisher", "subscriber", "more", "stages"),
    [
        (f", {TRACED}, service: {{mean: 100ms}}}}", QUICK, "", [("trace", 0.1), ("always", 0.1)]),
        (f", {TRACED}}}", "{id: s, broker: b0, topic: t}", BROKERS, [("trace", 1e-6), ("always", 0.1), ("always", 0.1)]),
        (", on: {mean: 3s}, off: {mean: 1s}, service: {mean: 100ms}}", S1, "", [("drawn", 0.1), ("trace", 0.25)]),
        ("}", S1[:-1] + ", service: {mean: 200ms}}", "", [("trace", 0.25), ("always", 0.2)]),
        (f", {SHUFFLED}, service: {{mean: 100ms}}}}", QUICK, "", [("shuffled", 0.1), ("always", 0.1)]),
    ],
    ids=["behind a publisher", "brokers behind a publisher", "two that come and go", "behind a session", "behind a shuffled one"],
)  # fmt: skip
def test_queues_in_series_with_a_trace(
    written: Written, publisher: str, subscriber: str, more: str, stages: list[tuple[str, float]]
) -> None:
    """Held against a simulation of its own, which knows nothing of exact means: 1.2 million messages."""
    way = predicted(written(ALWAYS[:-1] + publisher, subscriber, more)).ways[0]
    draws = np.random.default_rng(4)
    arrivals = times = np.cumsum(draws.exponential(1.0, 1_200_000))
    for kind, demand_s in stages:
        times = departures(times, *periods(kind, draws), demand_s, draws)
    assert way.end_to_end_s == pytest.approx(np.mean(times - arrivals[: len(times)]), rel=0.01)
    assert way.distribution is not None
    median_s = np.median(times - arrivals[: len(times)])
    assert way.distribution.quantile_s(0.5) == pytest.approx(median_s, rel=0.02)


def periods(kind: str, draws: np.random.Generator) -> tuple[Floats, Floats]:
    """For 1.2 million seconds; only ON where the server is never OFF."""
    on, off = np.array([1.0, 3.0]), np.array([2.0, 6.0])
    match kind:
        case "trace":
            return np.tile(on, 100_000), np.tile(off, 100_000)
        case "shuffled":
            return shuffled(on, 100_000, draws), shuffled(off, 100_000, draws)
        case "drawn":
            return draws.exponential(3.0, 300_000), draws.exponential(1.0, 300_000)
    return np.array([1.3e6]), np.array([0.0])


def test_without_service_two_traces_add_up(written: Written) -> None:
    """Each waits for the rest of an OFF period, (4 + 36) / 2 / 12 s, whatever the other and the calls are like."""
    both = predicted(written(CALLS[:-1] + f", {TRACED}}}", NO_SERVICE))
    assert both.ways[0].end_to_end_s == pytest.approx(2 * 40 / 24)
    assert both.ways[0].delivery_ratio == 1
    assert both.notes == ()


def test_qos_0_loses_what_comes_during_off(written: Written) -> None:
    found = predicted(written(ALWAYS, NO_SERVICE[:-1] + ", qos: 0}"))
    assert found.ways[0].delivery_ratio == pytest.approx(4 / 12)


def test_overload_is_unstable(written: Written) -> None:
    found = predicted(written(ALWAYS, S1.replace("250ms", "350ms")))
    (queue,) = found.unstable
    assert queue.at == "s"
    assert queue.utilisation == pytest.approx(1.05)
    assert isnan(found.ways[0].end_to_end_s)


def test_few_passes_are_said_to_be_too_few(written: Written) -> None:
    """1000 s are 83 passes of 12 s; one pass and a half of one copy are not enough."""
    file = written(ALWAYS, S1)
    assert predicted(file).notes == ()
    file.write_text(file.read_text().replace("1000s", "18s").replace("copies: 20", "copies: 1"))
    (note,) = predicted(file).notes
    assert note.startswith("one pass of the recorded traces takes 12s")


def audited(file: Path, on_tenths: int, messages: int) -> list[Assumption]:
    """The audit of 500 bins, in all of which there were equally many messages."""
    scenario = load(file).points[0]
    run = Run(0, 0, file.parent, scenario, "virtual", 1.0, 1.0, (10 * NS_PER_S, 1010 * NS_PER_S), ())
    ids = [f"p.{copy}" for copy in range(20)]
    bins = list(range(500))
    counts: Counts = {(0, kind): {} for kind in (PUBLICATIONS, SUBSCRIPTIONS)}
    counts[0, MESSAGES] = {peer: dict.fromkeys(bins, messages) for peer in ids}
    on = {"s": dict.fromkeys(range(QUANTILES), 0) | {on_tenths: 500}}
    return _of_run(run, counts, bins, on, {})


def test_recorded_peers_are_not_expected_to_be_exponential_or_poisson(written: Written) -> None:
    found = {it.name: it for it in audited(written(CALLS, S1), 3, 20)}
    assert "ON periods are exponential" not in found
    assert "messages of peers are Poisson" not in found
    assert found["load generators keep their rates"].holds
    law = "{id: s, broker: b0, topic: t, on: {mean: 1s}, off: {mean: 1s}}"
    others = {it.name: it for it in audited(written(ALWAYS, law), 3, 20)}
    assert not others["ON periods are exponential"].holds
    assert not others["messages of peers are Poisson"].holds
