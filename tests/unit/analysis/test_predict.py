"""From a scenario to its rows: loads, paths and delays worked out by hand."""

import json
from math import exp
from typing import Any

import pytest

from brokerbed.analysis.predict import experiment_as_json, predict
from tests.conftest import MINIMAL, FromText

STAR = MINIMAL + "topology: {tree: star, brokers: 3}\n"
HEADLINE = [
    "table.remote_entries", "table.local_entries", "rate.notifications", "rate.notifications.additional", "rate.control",
    "rate.total",
]  # fmt: skip


def rows(from_text: FromText, text: str) -> dict[tuple[str, ...], Any]:
    """(metric, *labels) -> predicted, of a single scenario."""
    experiment = from_text(text)
    output = experiment_as_json(experiment, [predict(point) for point in experiment.points], detail=True)
    json.dumps(output, allow_nan=False)
    return {(row["metric"], *row["labels"].values()): row["predicted"] for row in output["metrics"]}


def test_headline_rows_are_always_there_zeros_included(from_text: FromText) -> None:
    found = rows(from_text, MINIMAL + "topology: {tree: line, brokers: 1}\n")
    assert {metric: found[(metric,)] for metric in HEADLINE} == dict.fromkeys(HEADLINE, 0.0)


def test_one_by_one_overrides_the_even_spread(from_text: FromText) -> None:
    """Ten classes, three brokers: 30/s is 1/s each; b1's class 4 has 7/s instead of its 1/s."""
    spread = (
        STAR + "routing: flooding\nclasses: 10\npublications: {rate: 30/s, at: [{broker: b1, class: 4, rate: 7/s}]}\n"
    )
    found = rows(from_text, spread)
    assert found[("rate.notifications",)] == pytest.approx(2 * 36)
    assert found[("rate.notifications", "b1>b0")] == pytest.approx(16)
    assert found[("rate.notifications", "b0>b1")] == pytest.approx(20)


def test_subscriptions_at_take_the_common_lifetime_unless_they_have_their_own(from_text: FromText) -> None:
    text = """
classes: 2
subscriptions:
  lifetime: {mean: 10s}
  at:
    - {broker: b1, class: 0, arrival_rate: 0.2/s}
    - {broker: b2, class: 1, arrival_rate: 6/min, lifetime: {mean: 30s, law: lognormal, cv: 2}}
"""
    found = rows(from_text, STAR + text)
    assert found[("table.local_entries", "b1")] == pytest.approx(2)
    assert found[("table.local_entries", "b2")] == pytest.approx(3)
    assert found[("table.remote_entries",)] == pytest.approx(2 - 2.718281828459045**-2 - 2.718281828459045**-3)
    assert found[("rate.control", "b1>b0")] == pytest.approx(2 * 0.2 * 2.718281828459045**-2)


def test_peers_are_permanent_classes(from_text: FromText) -> None:
    text = """
publishers: [{id: p, broker: b1, topic: t, rate: 3/s}]
subscribers: [{id: s, broker: b2, topic: t}, {id: s2, broker: b2, topic: t}, {id: other, broker: b0, topic: u}]
copies: 4
"""
    found = rows(from_text, STAR + text)
    assert found[("table.remote_entries",)] == 4  # b0 has one entry for b2, per copy
    assert found[("table.local_entries",)] == 12
    assert found[("rate.notifications", "b1>b0")] == 12
    assert found[("rate.notifications", "b0>b2")] == 12
    assert found[("rate.notifications.additional",)] == 12  # nobody below b1 subscribes
    assert found[("rate.control",)] == 0
    assert ("delay.end_to_end", "p", "other") not in found
    simple = rows(from_text, STAR + text + "routing: simple\n")
    assert simple[("table.remote_entries",)] == 8


def test_peers_on_class_topics_and_wildcards(from_text: FromText) -> None:
    """Two classes of 6/s each (2/s per broker): s pulls class 0 to b1; w pulls everything, class/# being its entry."""
    base = STAR + "classes: 2\npublications: {rate: 12/s}\n"
    found = rows(from_text, base + "subscribers: [{id: s, broker: b1, topic: class/0000}]\n")
    assert found[("table.remote_entries",)] == 1
    assert found[("rate.notifications", "b0>b1")] == pytest.approx(4)
    assert found[("rate.notifications", "b0>b2")] == 0
    found = rows(from_text, base + "subscribers: [{id: w, broker: b1, topic: class/#}]\n")
    assert found[("table.remote_entries",)] == 1
    assert found[("rate.notifications", "b0>b1")] == pytest.approx(8)
    assert found[("rate.notifications.additional",)] == pytest.approx(4)  # from b2 alone
    found = rows(from_text, base + "subscribers: [{id: w, broker: b1, topic: +/0001}]\n")
    assert found[("rate.notifications", "b0>b1")] == pytest.approx(4)


LOADED = """
service: {broker_in: {mean: 100ms}, link: {mean: 50ms}}
publishers:
  - {id: p, broker: b1, topic: t, rate: 1/s, service: {mean: 200ms}}
  - {id: q, broker: b2, topic: t, rate: 2/s}
subscribers:
  - {id: s, broker: b2, topic: t, session_service: {mean: 100ms}, service: {mean: 50ms}}
"""


def test_delays_of_flows_that_share_queues_by_hand(from_text: FromText) -> None:
    """p and q meet at b2 and at the root: everything climbs, so q loads b2>b0 and b0 though its subscriber is local.

    Loads: b1 in 1, b1>b0 1; b2 in 2 + 1, b2>b0 2; b0 in 3, b0>b2 1, b0>b1 0; session and subscriber 3.
    """
    found = rows(from_text, STAR + LOADED)
    publisher, b1, b0, b2 = 0.2 / 0.8, 0.1 / 0.9, 0.1 / 0.7, 0.1 / 0.7
    up, down, session, subscriber = 0.05 / 0.95, 0.05 / 0.95, 0.1 / 0.7, 0.05 / 0.85
    assert found[("delay.stage", "link", "b2>b0")] == pytest.approx(0.05 / 0.9)
    assert found[("delay.stage", "broker_in", "b0")] == pytest.approx(b0)
    assert ("delay.stage", "link", "b0>b1") not in found  # nothing goes there
    assert found[("delay.end_to_end", "p", "s")] == pytest.approx(
        publisher + b1 + up + b0 + down + b2 + session + subscriber
    )
    assert found[("delay.end_to_end", "q", "s")] == pytest.approx(b2 + session + subscriber)
    assert found[("delivery.ratio", "p", "s")] == 1


def test_flooding_loads_every_queue(from_text: FromText) -> None:
    found = rows(from_text, STAR + LOADED + "routing: flooding\n")
    assert found[("delay.stage", "broker_in", "b1")] == pytest.approx(0.1 / 0.7)
    assert found[("delay.stage", "link", "b0>b1")] == pytest.approx(0.05 / 0.9)  # q's 2/s


def test_classes_load_the_peers_queues(from_text: FromText) -> None:
    found = rows(from_text, STAR + LOADED + "classes: 5\npublications: {rate: 6/s}\n")
    assert found[("delay.stage", "broker_in", "b0")] == pytest.approx(0.1 / (1 - 0.9))
    assert found[("delay.stage", "link", "b1>b0")] == pytest.approx(0.05 / (1 - 0.15))


def test_copies_do_not_load_one_another_nor_the_classes(from_text: FromText) -> None:
    alone = rows(from_text, STAR + LOADED)
    found = rows(from_text, STAR + LOADED + "copies: 5\nclasses: 5\npublications: {rate: 6/s}\n")
    assert found[("delay.end_to_end", "p", "s")] == pytest.approx(alone[("delay.end_to_end", "p", "s")])
    pooled = (15 * 0.1 / 0.7 + 6 * 0.1 / 0.4) / 21  # five stages with 3/s each, one with the classes' 6/s
    assert found[("delay.stage", "broker_in", "b0")] == pytest.approx(pooled)


def test_unstable_queue_is_named_and_null(from_text: FromText) -> None:
    text = (
        STAR
        + """
publishers: [{id: p, broker: b1, topic: t, rate: 4/s}]
subscribers: [{id: s, broker: b2, topic: t, on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}}]
"""
    )
    prediction = predict(from_text(text).points[0])
    assert [(queue.stage, queue.at, queue.utilisation) for queue in prediction.unstable] == [("session", "s", 1.0)]
    found = rows(from_text, text)
    assert found[("delay.end_to_end", "p", "s")] is None
    assert found[("delay.stage", "session", "s")] is None
    assert found[("delivery.ratio", "p", "s")] is None
    assert found[("rate.notifications",)] == 8  # a session feeds no link


def test_unstable_broker_leaves_the_rates_behind_it_open(from_text: FromText) -> None:
    found = rows(from_text, STAR + "service: {broker_in: {mean: 1s}}\npublications: {rate: 3/s}\n")
    assert found[("delay.stage", "broker_in", "b0")] is None
    assert found[("rate.notifications",)] is None
    assert found[("rate.total",)] is None
    assert found[("rate.control",)] == 0


def test_general_laws_where_the_model_has_them(from_text: FromText) -> None:
    """Fixed OFF periods: pr = 1/2 * 400/(2*20) = 5; V = (.125*5 + 2*.125^2) / .75; R = 2 (V + .125) + 5."""
    peers = """
publishers: [{id: p, broker: b0, topic: t, rate: 1/s}]
subscribers:
  - {id: s, broker: b0, topic: t, on: {mean: 20s, law: LAW}, off: {mean: 20s, law: deterministic}, session_service: {mean: 125ms}}
"""
    found = rows(from_text, STAR + peers.replace("LAW", "exponential"))
    waiting = (0.125 * 5 + 2 * 0.125**2) / 0.75
    assert found[("delay.end_to_end", "p", "s")] == pytest.approx(2 * (waiting + 0.125) + 5)
    other = from_text(STAR + peers.replace("LAW", "uniform"))
    prediction = predict(other.points[0])
    assert [row.predicted for row in prediction.rows if row.metric == "delay.end_to_end"] == [None]
    assert "uniform" in prediction.notes[0]


def test_qos0_to_a_peer_that_disconnects_is_lost_in_part(from_text: FromText) -> None:
    peers = """
publishers: [{id: p, broker: b1, topic: t, rate: 1/s}]
subscribers: [{id: s, broker: b2, topic: t, qos: 0, on: {mean: 3s}, off: {mean: 1s}, service: {mean: 500ms}}]
"""
    found = rows(from_text, STAR + peers)
    assert found[("delivery.ratio", "p", "s")] == pytest.approx(0.75)
    assert found[("delay.end_to_end", "p", "s")] == pytest.approx(0.5 / (1 - 0.75 * 0.5))
    busy = rows(from_text, STAR + peers.replace("service:", "session_service: {mean: 1ms}, service:"))
    assert busy[("delivery.ratio", "p", "s")] is None
    assert busy[("delay.end_to_end", "p", "s")] is None


def test_constant_link_delay_adds_up_and_a_random_one_has_no_model(from_text: FromText) -> None:
    peers = "publishers: [{id: p, broker: b1, topic: t, rate: 1/s}]\nsubscribers: [{id: s, broker: b2, topic: t}]\n"
    links = "links: [{between: [b0, b1], delay: {mean: 20ms, law: deterministic}}, {between: [b2, b0], delay: {mean: 5ms, law: deterministic}}]\n"
    assert rows(from_text, STAR + peers + links)[("delay.end_to_end", "p", "s")] == pytest.approx(0.025)
    random = "links: [{between: [b1, b0], delay: {mean: 20ms}}]\n"
    assert rows(from_text, STAR + peers + random)[("delay.end_to_end", "p", "s")] is None


def test_queue_limit_in_reach_is_noted(from_text: FromText) -> None:
    text = (
        STAR
        + """
publishers: [{id: p, broker: b1, topic: t, rate: 3/s}]
subscribers: [{id: s, broker: b2, topic: t, on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}}]
limits: {messages: 500}
"""
    )
    notes = predict(from_text(text).points[0]).notes
    assert len(notes) == 1
    assert "about 123 messages wait for s" in notes[0]


def test_sweep_points_carry_headline_rows_and_details_on_demand(from_text: FromText) -> None:
    experiment = from_text(STAR + "sweep: {topology.brokers: [3, 4], routing: [simple, flooding]}\n")
    plain = experiment_as_json(experiment, [predict(point, detail=False) for point in experiment.points], detail=False)
    assert [point["at"] for point in plain["points"]] == [
        {"topology.brokers": 3, "routing": "simple"}, {"topology.brokers": 3, "routing": "flooding"},
        {"topology.brokers": 4, "routing": "simple"}, {"topology.brokers": 4, "routing": "flooding"},
    ]  # fmt: skip
    assert [row["metric"] for row in plain["points"][0]["metrics"]] == HEADLINE
    detailed = experiment_as_json(experiment, [predict(point) for point in experiment.points], detail=True)
    assert {"link": "b3>b0"} in [row["labels"] for row in detailed["points"][2]["metrics"]]


MISSPELT = """
classes: 3
publications: {at: [{broker: b1, class: 1, rate: 1/s}, {broker: b1, class: 2, rate: 0/s}]}
subscriptions: {lifetime: {mean: 10s}, at: [{broker: b2, class: 0, arrival_rate: 1/s}]}
publishers:
  - {id: heard, broker: b1, topic: hall/1, rate: 1/s}
  - {id: unheard, broker: b2, topic: hall/9/x, rate: 1/s}
  - {id: heard-by-class, broker: b2, topic: class/0000, rate: 1/s}
subscribers:
  - {id: reached, broker: b2, topic: "hall/+"}
  - {id: unreached, broker: b1, topic: hall/2}
  - {id: reached-by-class, broker: b2, topic: class/0001}
  - {id: of-a-silent-class, broker: b2, topic: class/0002}
"""


def test_peers_whose_topics_match_nobody_are_named_with_place_and_remedy(from_text: FromText) -> None:
    (point,) = from_text(STAR + MISSPELT).points
    publishers = "(topics of publishers: hall/1, hall/9/x, class/0000)"
    assert predict(point).notes == (
        f"subscriber unreached at b1 receives nothing, as nobody publishes to hall/2; correct its topic, or publish to it {publishers}",
        f"subscriber of-a-silent-class at b2 receives nothing, as nobody publishes to class/0002; correct its topic, or publish to it {publishers}",
        "publisher unheard at b2 reaches nobody, as nobody subscribes to hall/9/x; correct its topic, or subscribe to it (topics of subscribers: hall/+, hall/2, class/0001, ...)",
    )


@pytest.mark.parametrize(
    "line", ["publications: {rate: 1/s}", "publishers: [{id: p, broker: b1, topic: class/0001, rate: 1/s}]"]
)
def test_subscriber_that_is_reached_by_a_class_or_a_publisher_is_not_warned_of(from_text: FromText, line: str) -> None:
    (point,) = from_text(STAR + f"classes: 3\n{line}\nsubscribers: [{{id: s, broker: b2, topic: 'class/+'}}]\n").points
    assert predict(point).notes == ()


def test_queues_with_bursts_have_no_prediction(from_text: FromText) -> None:
    """Sources that come and go are no Poisson process. Rates stay known, and so do delays of copies with their own stages."""
    text = """
topology: {tree: line, brokers: 2}
service: {broker_in: {mean: 1ms}, link: {mean: 1ms}}
publications: {rate: 5/s, sources: {on: {mean: 1s}, off: {mean: 3s}}}
publishers: [{id: p, broker: b1, topic: t, rate: 1/s}]
subscribers: [{id: s, broker: b0, topic: t}]
"""
    for copies, is_known in ((1, False), (2, True)):
        (scenario,) = from_text(MINIMAL + text + f"copies: {copies}\n").points
        prediction = predict(scenario)
        found = {(row.metric, *row.labels.values()): row.predicted for row in prediction.rows}
        assert (found["delay.end_to_end", "p", "s"] is not None) == is_known
        assert found["delay.stage", "broker_in", "b0"] is None
        assert found["rate.notifications",] == pytest.approx(
            5 / 4 / 2 + copies
        )  # half of the classes' at b1, which climb
        assert any("sources that come and go" in note for note in prediction.notes)


def test_quantiles_are_predicted_exactly_or_from_sample_paths(from_text: FromText) -> None:
    """Two queues with exponential service at 10/s and arrivals at 1/s: Erlang's law with 9/s. What comes from a queue that
    is OFF at times comes in bursts: sample paths tell how long it waits in another one, and Algorithm 1 does not."""
    queue, outages = "{mean: 100ms}", ", on: {mean: 2s}, off: {mean: 2s}"

    def found(publisher: str, session: str, model: str = "best") -> Any:
        text = f"""{MINIMAL}
topology: {{tree: line, brokers: 1}}
model: {model}
publishers: [{{id: p, broker: b0, topic: t, rate: 1/s, service: {queue}{publisher}}}]
subscribers: [{{id: s, broker: b0, topic: t{session}}}]
"""
        return rows(from_text, text)["delay.end_to_end.p95", "p", "s"]

    service = f", session_service: {queue}"
    erlang_s = found("", service)
    assert (1 + 9 * erlang_s) * exp(-9 * erlang_s) == pytest.approx(0.05, rel=1e-4)
    assert found("", service + outages) > erlang_s
    assert found(outages, service, "algorithm1") is None
    alone_s = found(outages, "")
    assert alone_s < found(outages, service) < alone_s + 1, "a burst of some messages, of 0.1 s each"
