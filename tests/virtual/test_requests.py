"""Requests and answers on the virtual ground: tables and rates exactly as predicted, round trips as queueing theory has them."""

from dataclasses import replace

import numpy as np
import pytest

from brokerbed.analysis.predict import predict
from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.scenario import Scenario
from tests.conftest import FromText
from tests.virtual.figures import Figures, simulate

SHARED = """
scenario: 1
name: shared
clock: {measure: 60s}
topology: {tree: regular, arity: 2, depth: 3}
requesters:
  - {id: q1, broker: b3, topic: ask, rate: 3/s}
  - {id: q2, broker: b4, topic: ask, rate: 2/s}
  - {id: q3, broker: b5, topic: other, rate: 1/s}
  - {id: q4, broker: b1, topic: other, rate: 1/s}
responders:
  - {id: r1, broker: b6, topic: ask}
  - {id: r2, broker: b0, topic: '+'}
subscribers: [{id: spy, broker: b2, topic: 'reply/#'}]
"""
QUEUES = """
scenario: 1
name: queues
clock: {warmup: 20s, measure: 500s}
service: {broker_in: {mean: 60ms}, link: {mean: 40ms}}
requesters:
  - {id: q1, broker: b3, topic: ask, rate: 2/s}
  - {id: q2, broker: b4, topic: ask, rate: 1/s}
responders: [{id: r, broker: b1, topic: ask, service: {mean: 120ms}}]
copies: 8
"""
LINE, STAR = "topology: {tree: line, brokers: 5}\n", "topology: {tree: star, brokers: 5}\n"


ALONE = """
scenario: 1
name: alone
clock: {measure: 60s}
topology: {tree: star, brokers: 3}
service: {link: {mean: 1ms}}
requesters: [{id: q, broker: b1, topic: ask, rate: 1/s}, {id: lost, broker: b1, topic: aks, rate: 1/s}]
responders: [{id: r1, broker: b2, topic: ask}, {id: r2, broker: b2, topic: ask}, {id: idle, broker: b2, topic: never}]
"""


def headline(scenario: Scenario) -> dict[tuple[str, ...], float | None]:
    rows = predict(scenario, detail=False).rows
    return {(row.metric, *row.labels.values()): row.predicted for row in rows}


def round_trips(figures: Figures, requester: str, responder: str) -> np.ndarray:
    """An answer has the number of its request."""
    asked = np.concatenate(figures._made[requester])
    number, done_ns = np.concatenate(figures._done[requester, f"{responder}/{requester}"], axis=1)
    assert number.tolist() == list(range(1, len(asked) + 1)), "each request is answered once, in order"
    times: np.ndarray = (done_ns - asked) / 1e9
    return times


@pytest.mark.parametrize("algorithm", ALGORITHMS.all)
def test_tables_and_rates_are_those_of_more_topics(algorithm: str, from_text: FromText) -> None:
    """Messages take no time here, so with the rates at which requests were made by chance all rows are exact."""
    scenario = from_text(SHARED + f"routing: {algorithm}\n").points[0]
    figures = simulate(scenario)
    made = {name: sum(map(len, times)) for name, times in figures._made.items()}
    assert made["r1/q1"] == made["r2/q1"] == made["q1"] > 100
    assert "r1/q3" not in made
    seconds = scenario.clock.measure / 1e9
    asked = [peer.model_copy(update={"rate": made[peer.id] / seconds}) for peer in scenario.requesters]
    predicted = headline(replace(scenario, requesters=tuple(asked)))
    for metric, measured in figures.headline().items():
        if (metric,) in predicted and not (algorithm == "flooding" and metric.endswith("additional")):
            assert measured == pytest.approx(predicted[metric,]), metric


@pytest.mark.parametrize("tree", [LINE, STAR])
def test_round_trips_are_as_predicted(tree: str, from_text: FromText) -> None:
    """Exponential services make the network one of Jackson's, in which the mean of every queue is that of M/M/1."""
    scenario = from_text(QUEUES + tree).points[0]
    figures, predicted = simulate(scenario), headline(scenario)
    for requester in ("q1", "q2"):
        copies = [round_trips(figures, f"{requester}.{copy}", f"r.{copy}").mean() for copy in range(scenario.copies)]
        error = np.std(copies, ddof=1) / np.sqrt(len(copies))
        expected = predicted["delay.round_trip", requester, "r"]
        assert expected is not None
        assert error < 0.02 * expected
        assert abs(np.mean(copies) - expected) < 3 * error


def test_prediction_is_the_sum_of_all_queues_on_both_ways(from_text: FromText) -> None:
    """On the line b0 ... b4 requests climb from b3 and b4 to the root, past b1; answers climb from b1 and go down again.
    So 3/s pass the inputs of b3 to b0 as requests, and 3/s as answers; each direction of a link has 3/s of either."""
    predicted = headline(from_text(QUEUES + LINE).points[0])

    def passing(demand_s: float, *rates: float) -> float:
        return sum(demand_s / (1 - rate * demand_s) for rate in rates)

    inputs, links = passing(0.06, 6, 6, 6), passing(0.04, 3, 3)  # b3, b2, b1, and the links between them
    assert predicted["delay.round_trip", "q1", "r"] == pytest.approx(2 * (inputs + links) + passing(0.12, 3))


def test_prediction_warns_of_peers_alone_and_of_answers_that_meet(from_text: FromText) -> None:
    meeting, idle, lost = predict(from_text(ALONE).points[0]).notes
    assert meeting.startswith("several responders answer each request of q; their answers meet on the way back")
    assert idle.startswith("responder idle at b2 receives nothing, as nobody publishes to never; correct its topic")
    assert lost.startswith("requester lost at b1 gets no answers, as no responder has the topic aks; correct its topic")
    assert idle.endswith("(topics of requesters: ask, aks)")
    assert lost.endswith("(topics of responders: ask, never)")


def test_unstable_responder_has_no_round_trip(from_text: FromText) -> None:
    prediction = predict(from_text((QUEUES + LINE).replace("120ms", "400ms")).points[0], detail=False)
    assert [(queue.stage, queue.at) for queue in prediction.unstable] == [("subscriber", "r")]
    trips = [row.predicted for row in prediction.rows if row.metric == "delay.round_trip"]
    assert trips == [None, None]
