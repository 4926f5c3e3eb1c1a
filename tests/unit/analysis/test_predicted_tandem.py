"""Rows of scenarios with intermittent peers in series: which method made them, and what Algorithm 1 says instead."""

from typing import Any

import pytest

from brokerbed.analysis.predict import experiment_as_json, predict
from tests.conftest import MINIMAL, FromText

DEGRADED = MINIMAL + """
topology: {tree: star, brokers: 3}
service: {broker_in: {mean: 62.5ms}, link: {mean: 62.5ms}}
publishers: [{id: p, broker: b1, topic: t, rate: 2/s, on: {mean: 1s}, off: {mean: 1s}, service: {mean: 62.5ms}}]
subscribers:
  - {id: s, broker: b2, topic: t, on: {mean: 1.5s}, off: {mean: 1.5s}, session_service: {mean: 62.5ms}, service: {mean: 62.5ms}}
"""  # fmt: skip


def rows(from_text: FromText, text: str) -> dict[tuple[str, ...], dict[str, Any]]:
    experiment = from_text(text)
    output = experiment_as_json(experiment, [predict(point) for point in experiment.points], detail=True)
    return {(row["metric"], *row["labels"].values()): row for row in output["metrics"]}


def test_degraded_tandem_says_how_it_was_predicted(from_text: FromText) -> None:
    """The truth is 2.6385 s, by an independent simulation."""
    found = rows(from_text, DEGRADED)
    row = found["delay.end_to_end", "p", "s"]
    assert row["predicted"] == pytest.approx(2.6385, rel=0.005)
    assert row["method"] == "recursion"
    assert 0 < row["standard_error"] < 0.005 * row["predicted"]
    assert found["delay.stage", "link", "b1>b0"]["method"] == "recursion"
    first = found["delay.stage", "publisher", "p"]
    assert first["predicted"] == pytest.approx(
        0.5 / 0.75 + 0.125 / 0.75
    )  # equation 5: (Toff^2/(Ton+Toff) + D a)/(1 - .25)
    assert "method" not in first


def test_algorithm_1_has_the_figures_of_the_paper_and_no_method(from_text: FromText) -> None:
    row = rows(from_text, DEGRADED + "model: algorithm1\n")["delay.end_to_end", "p", "s"]
    assert round(row["predicted"], 3) == 2.429
    assert "method" not in row
    assert "standard_error" not in row


def test_copies_and_constant_delays_of_links(from_text: FromText) -> None:
    """Copies have stages of their own, and a delay adds itself to all messages."""
    text = DEGRADED + "copies: 20\nlinks: [{between: [b0, b2], delay: {mean: 300ms, law: deterministic}}]\n"
    row = rows(from_text, text)["delay.end_to_end", "p", "s"]
    assert row["predicted"] == pytest.approx(2.6385 + 0.3, rel=0.005)


def test_subscriber_behind_a_session_that_comes_and_goes(from_text: FromText) -> None:
    """A straightforward simulation of these three queues, message by message, gives 0.0227 s."""
    found = rows(from_text, MINIMAL + """
topology: {tree: line, brokers: 2}
publishers:
  - {id: p, broker: b0, topic: t, rate: 0.5/s, on: {mean: 6s}, off: {mean: 12s, law: uniform}, service: {mean: 10ms}}
subscribers:
  - {id: s, broker: b1, topic: t, on: {mean: 6s}, off: {mean: 12s, law: uniform}, session_service: {mean: 10ms}, service: {mean: 10ms}}
""")  # fmt: skip
    assert found["delay.stage", "subscriber", "s"]["predicted"] == pytest.approx(0.0227, rel=0.03)


def test_single_intermittent_peer_is_exact(from_text: FromText) -> None:
    """Figure 7 of the paper: 20.5 s at 2/s, by formula."""
    text = """
topology: {tree: line, brokers: 1}
publishers: [{id: p, broker: b0, topic: t, rate: 2/s}]
subscribers: [{id: s, broker: b0, topic: t, on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}}]
"""
    row = rows(from_text, MINIMAL + text)["delay.end_to_end", "p", "s"]
    assert row["predicted"] == pytest.approx(20.5)
    assert "method" not in row


def test_overloaded_subscriber_leaves_the_others_their_prediction(from_text: FromText) -> None:
    slow = DEGRADED + "  - {id: slow, broker: b1, topic: t, service: {mean: 1s}}\n"
    found = rows(from_text, slow)
    assert found["delay.end_to_end", "p", "slow"]["predicted"] is None
    assert found["delay.end_to_end", "p", "s"]["predicted"] == pytest.approx(2.6385, rel=0.005)


def test_subscriber_that_misses_messages_keeps_its_formula(from_text: FromText) -> None:
    """At QoS 0 half of the messages pass the session at once, and the rest is lost; its own queue then has 1/s: M/M/1."""
    text = DEGRADED.replace("session_service: {mean: 62.5ms}, ", "").replace(
        "topic: t, on: {mean: 1.5s}", "topic: t, qos: 0, on: {mean: 1.5s}"
    )
    found = rows(from_text, text)
    stages = [
        ("publisher", "p"),
        *(("broker_in", it) for it in ("b1", "b0", "b2")),
        *(("link", it) for it in ("b1>b0", "b0>b2")),
    ]
    expected = sum(found["delay.stage", *stage]["predicted"] for stage in stages) + 0.0625 / (1 - 0.0625)
    assert found["delay.end_to_end", "p", "s"]["predicted"] == pytest.approx(expected, rel=0.002)
