"""What is predicted for publishers whose messages have a lifetime, and for those beside them."""

from typing import Any

import numpy as np
import pytest

from brokerbed.analysis.models.exponential_lifetime import exponential_lifetime
from brokerbed.analysis.models.fixed_lifetime import fixed_lifetime
from brokerbed.analysis.models.lifetime_path import Stage, path_sample
from brokerbed.analysis.models.sample_path import Variable
from brokerbed.analysis.models.server import Server
from brokerbed.analysis.predict import Prediction, predict
from tests.conftest import MINIMAL, FromText

ALONE = MINIMAL + "topology: {tree: star, brokers: 1}\n"
PAIR = MINIMAL + "topology: {tree: line, brokers: 2}\n"
SESSION = (
    "subscribers: [{id: s, broker: b0, topic: t, on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}}]\n"
)


def predicted(from_text: FromText, text: str) -> tuple[dict[tuple[str, ...], Any], Prediction]:
    (scenario,) = from_text(text).points
    prediction = predict(scenario)
    return {(row.metric, *row.labels.values()): row.predicted for row in prediction.rows}, prediction


@pytest.mark.parametrize(
    ("expiry", "ratio", "delay_s"),
    [
        ("5s", 0.5998, 0.707),
        ("{mean: 20s, law: deterministic}", 0.7889, 4.533),
        ("{mean: 80s, law: exponential}", 0.8564, 10.455),
    ],
)
def test_one_session(from_text: FromText, expiry: str, ratio: float, delay_s: float) -> None:
    publisher = f"publishers: [{{id: p, broker: b0, topic: t, rate: 2/s, expiry: {expiry}}}]\n"
    rows, prediction = predicted(from_text, ALONE + publisher + SESSION)
    assert rows["delivery.ratio", "p", "s"] == pytest.approx(ratio, abs=6e-5)
    assert rows["delay.end_to_end", "p", "s"] == pytest.approx(delay_s, abs=6e-4)
    assert rows["delay.stage", "session", "s"] == rows["delay.end_to_end", "p", "s"]
    assert rows["delay.end_to_end.p50", "p", "s"] < delay_s < rows["delay.end_to_end.p95", "p", "s"]
    assert not prediction.notes
    assert not prediction.waiting_messages()  # Little's law would need the time of those that die


def test_expiring_queues_are_never_unstable(from_text: FromText) -> None:
    """The session serves 4/s on average, and gets 8/s."""
    publisher = "publishers: [{id: p, broker: b0, topic: t, rate: 8/s, expiry: 20s}]\n"
    rows, prediction = predicted(from_text, ALONE + publisher + SESSION)
    assert rows["delivery.ratio", "p", "s"] == pytest.approx(0.5, abs=1e-4)
    assert not prediction.unstable
    rows, prediction = predicted(from_text, ALONE + publisher.replace(", expiry: 20s", "") + SESSION)
    assert rows["delivery.ratio", "p", "s"] is None
    assert prediction.unstable


def test_two_publishers_load_one_session(from_text: FromText) -> None:
    """Alike, they are one stream; with other lifetimes, or none, there is no model."""
    one = "{id: p, broker: b0, topic: t, rate: 1/s, expiry: 20s}"
    for other, expected in [("20s", 0.7889), ("21s", None), (None, None)]:
        expiry = f", expiry: {other}" if other else ""
        publishers = f"publishers: [{one}, {{id: q, broker: b0, topic: t, rate: 1/s{expiry}}}]\n"
        rows, prediction = predicted(from_text, ALONE + publishers + SESSION)
        for name in ("p", "q"):
            found = rows["delivery.ratio", name, "s"]
            assert found == (None if expected is None else pytest.approx(expected, abs=6e-5))
        assert bool(prediction.notes) == (expected is None)


def test_publishers_that_lose_messages_load_links_less(from_text: FromText) -> None:
    """What dies in the queue of a publisher crosses no link."""
    publisher = "{id: p, broker: b1, topic: t, rate: 2/s, expiry: 5s, on: {mean: 20s}, off: {mean: 20s}, service: {mean: 125ms}}"
    text = f"{PAIR}publishers: [{publisher}]\nsubscribers: [{{id: s, broker: b0, topic: t}}]\n"
    rows, prediction = predicted(from_text, text)
    assert rows["rate.notifications",] == pytest.approx(2 * 0.59984, rel=1e-4)
    assert rows["rate.received", "b0"] == pytest.approx(2 * 0.59984, rel=1e-4)
    assert rows["delivery.ratio", "p", "s"] == pytest.approx(0.59984, rel=1e-4)
    assert rows["delay.stage", "publisher", "p"] == pytest.approx(0.7067, rel=1e-3)
    assert rows["rate.expired", "publisher", "p"] == pytest.approx(2 * (1 - 0.59984), rel=1e-4)
    assert not prediction.notes


def test_messages_that_die_on_the_way_leave_link_rates_unknown(from_text: FromText) -> None:
    publisher = "publishers: [{id: p, broker: b1, topic: t, rate: 2/s, expiry: 5s}]\n"
    subscriber = "subscribers: [{id: s, broker: b0, topic: t}]\n"
    rows, prediction = predicted(from_text, PAIR + publisher + subscriber + "service: {broker_in: {mean: 10ms}}\n")
    assert rows["rate.notifications",] is None
    assert rows["delay.end_to_end", "p", "s"] == pytest.approx(2 * 0.01 / (1 - 0.02), rel=0.01)
    assert any("can die" in note for note in prediction.notes)


def test_what_dies_on_a_path_dies_in_one_of_its_queues(from_text: FromText) -> None:
    law = "on: {mean: 20s}, off: {mean: 20s}"
    publisher = (
        f"publishers: [{{id: p, broker: b1, topic: t, rate: 2/s, expiry: 5s, {law}, service: {{mean: 125ms}}}}]\n"
    )
    subscriber = f"subscribers: [{{id: s, broker: b0, topic: t, {law}, service: {{mean: 100ms}}}}]\n"
    rows, _ = predicted(from_text, f"{PAIR}copies: 3\n{publisher}{subscriber}")
    died = {labels[0]: value for (name, *labels), value in rows.items() if name == "rate.expired"}
    assert died["publisher"] == pytest.approx(3 * 2 * (1 - 0.59984), rel=0.01)  # nothing behind it changes that
    assert all(rate is not None and rate > 0 for rate in died.values())
    ratio = rows["delivery.ratio", "p", "s"]
    assert ratio is not None
    assert sum(filter(None, died.values())) == pytest.approx(3 * 2 * (1 - ratio))


def test_qos_0_to_a_peer_that_is_away_has_no_prediction(from_text: FromText) -> None:
    """Some messages wait for service, and others are dropped because the subscriber is away."""
    publisher = "publishers: [{id: p, broker: b0, topic: t, rate: 2/s, expiry: 5s, qos: 0}]\n"
    session = "on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}"
    rows, prediction = predicted(
        from_text, f"{PAIR}{publisher}subscribers: [{{id: s, broker: b0, topic: t, {session}}}]\n"
    )
    for row in (("delivery.ratio", "p", "s"), ("delay.end_to_end", "p", "s"), ("delay.stage", "session", "s")):
        assert rows[row] is None, row
    assert rows["rate.expired", "session", "s"] is None
    assert any("no model of QoS 0" in note for note in prediction.notes)


def test_lifetimes_without_queues_change_nothing(from_text: FromText) -> None:
    publisher = "publishers: [{id: p, broker: b1, topic: t, rate: 2/s, expiry: 5s}]\n"
    rows, prediction = predicted(from_text, f"{PAIR}{publisher}subscribers: [{{id: s, broker: b0, topic: t}}]\n")
    assert (rows["delivery.ratio", "p", "s"], rows["delay.end_to_end", "p", "s"]) == (1, 0)
    assert rows["rate.notifications",] == pytest.approx(2)
    assert not prediction.notes


@pytest.mark.parametrize("law", ["deterministic", "exponential"])
def test_sample_paths_of_one_queue(law: str) -> None:
    """Within four standard errors of the exact models, which they share nothing with."""
    exact = {"deterministic": fixed_lifetime, "exponential": exponential_lifetime}[law](Server(3, 0.2, 2, 1), 1.5)
    stage = Stage(*(Variable("exponential", mean_s) for mean_s in (0.2, 2.0, 1.0)))
    found = path_sample(3.0, (stage,), Variable(law, 1.5))
    assert exact is not None
    assert found.distribution is not None
    for estimate, mean in ((found.ratio, exact.ratio), (found.delay_s, exact.delay_s)):
        assert 0 < estimate.standard_error < 0.005
        assert estimate.mean == pytest.approx(mean, abs=4 * estimate.standard_error)
    assert found.stages_s == (found.delay_s,)
    median_s = found.distribution.quantile_s(0.5)
    assert exact.longer(np.array([median_s]))[0] == pytest.approx(0.5, abs=0.01)


def test_sample_paths_of_a_tandem_without_deaths() -> None:
    """Two queues with exponential service at 10/s and arrivals at 4/s: 1/6 s each, and hardly anything dies in 60 s."""
    stage = Stage(Variable("exponential", 0.1))
    found = path_sample(4.0, (stage, stage), Variable("deterministic", 60.0))
    assert found.ratio.mean == 1
    for estimate, mean_s in ((found.delay_s, 2 / 6), *((stage_s, 1 / 6) for stage_s in found.stages_s)):
        assert 0 < estimate.standard_error < 0.02 * mean_s
        assert estimate.mean == pytest.approx(mean_s, abs=4 * estimate.standard_error)


def test_sample_paths_that_would_take_too_long_have_no_value() -> None:
    stage = Stage(*(Variable("exponential", mean_s) for mean_s in (0.001, 600.0, 600.0)))
    assert path_sample(100.0, (stage,), Variable("deterministic", 60.0)).distribution is None
