"""Delays of peers that roam, and the messages that their sessions take along: by hand, and by brute-force simulation."""

import math
import random
from collections import deque
from collections.abc import Callable

import pytest

from brokerbed.analysis.predict import Prediction, predict
from tests.conftest import FromText

HEAD = "scenario: 1\nname: x\nclock: {measure: 1000s}\n"
LINE = "topology: {tree: line, brokers: 3}\n"
CYCLES = 100_000
LAWS: dict[str, Callable[[random.Random, float], float]] = {
    "exponential": lambda draw, mean: draw.expovariate(1 / mean),
    "deterministic": lambda _, mean: mean,
    "uniform": lambda draw, mean: draw.uniform(0, 2 * mean),
}


def rows_of(prediction: Prediction) -> dict[tuple[str, ...], float | None]:
    return {(row.metric, *row.labels.values()): row.predicted for row in prediction.rows}


def queue_at_end_of_off(rate: float, demand_s: float, on_s: float, off_s: float, law: str) -> float:
    """The mean number of messages that wait at the end of OFF periods, by playing them one after the other."""
    draw = random.Random(7)
    now = total = 0.0
    arriving, queue = draw.expovariate(rate), deque[float]()  # the service that each message still needs

    def arrive_until(end: float) -> None:
        nonlocal arriving
        while arriving <= end:
            queue.append(draw.expovariate(1 / demand_s) if demand_s else 0.0)
            arriving += draw.expovariate(rate)

    for _ in range(CYCLES):
        end = now + draw.expovariate(1 / on_s)
        while now < end:
            arrive_until(now)
            until = min(end, arriving)
            while queue and now + queue[0] <= until:
                now += queue.popleft()
            if queue:
                queue[0] -= until - now
            now = until
        end = now + LAWS[law](draw, off_s)
        arrive_until(end)
        now = end
        total += len(queue)
    return total / CYCLES


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("demand_s", [0.0, 0.25])
def test_messages_that_move(law: str, demand_s: float, from_text: FromText) -> None:
    """Between b0, b1 and b2 of a line, a move goes over 4/3 links."""
    rate, on_s, off_s = 1.5, 6.0, 3.0
    service = f", session_service: {{mean: {demand_s}s}}" if demand_s else ""
    peers = (
        f"subscribers: [{{id: s, brokers: [b0, b1, b2], topic: t, on: {{mean: {on_s}s}},"
        f" off: {{mean: {off_s}s, law: {law}}}{service}}}]\n"
        f"publishers: [{{id: p, broker: b0, topic: t, rate: {rate}/s}}]\ncopies: 5\n"
    )
    (scenario,) = from_text(HEAD + LINE + peers).points
    moved = rows_of(predict(scenario))["rate.moved",]
    assert moved is not None
    expected = queue_at_end_of_off(rate, demand_s, on_s, off_s, law)
    assert moved / 5 * (on_s + off_s) / (4 / 3) == pytest.approx(expected, rel=0.01)


def test_delay_is_that_of_the_same_peer_at_one_broker(from_text: FromText) -> None:
    """The check values of the ON/OFF queue: D = .125, Ton = Toff = 20, rate 2: 20.5 s."""
    life = "on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}"
    peers = f"subscribers: [{{id: s, brokers: [b0, b2], topic: t, {life}}}]\n"
    peers += "publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]\n"
    found = rows_of(predict(from_text(HEAD + LINE + peers).points[0]))
    assert found["delay.end_to_end", "p", "s"] == pytest.approx(20.5)
    assert found["delivery.ratio", "p", "s"] == 1.0
    assert found["delay.move", "s"] is None


def test_stages_on_the_way_count_with_the_places_where_they_are(from_text: FromText) -> None:
    """A star with p at the root and s at b1 or b2. Everything passes the input of b0, and one of the other two.

    While s is at b1, the input of b1 is an M/M/1 queue with all messages: 0.1 / (1 - 0.3) s, whatever b2 does. So the
    delay is 2 * 0.1 / 0.7 and that of the session; the rate at each leaf is half of that of the publisher.
    """
    peers = "service: {broker_in: {mean: 100ms}}\ntopology: {tree: star, brokers: 3}\n"
    peers += "subscribers: [{id: s, brokers: [b1, b2], topic: t, on: {mean: 600s}, off: {mean: 600s}}]\n"
    peers += "publishers: [{id: p, broker: b0, topic: t, rate: 3/s}]\n"
    found = rows_of(predict(from_text(HEAD + peers).points[0]))
    assert found["delay.end_to_end", "p", "s"] == pytest.approx(300 + 2 * 0.1 / 0.7)
    assert found["rate.received", "b1"] == pytest.approx(1.5)
    assert found["delay.stage", "broker_in", "b1"] == pytest.approx(0.1 / 0.7)


def test_delays_of_links_beside_the_places_are_averaged(from_text: FromText) -> None:
    """p is behind a link of 2 s below b2; s is at b0 or b1 of the line b0, b1, b2, b3: the delay is always there."""
    peers = "links: [{between: [b2, b3], delay: {mean: 2s, law: deterministic}}]\ntopology: {tree: line, brokers: 4}\n"
    peers += "subscribers: [{id: s, brokers: [b0, b1], topic: t, on: {mean: 30s}, off: {mean: 30s}}]\n"
    peers += "publishers: [{id: p, broker: b3, topic: t, rate: 3/s}]\n"
    found = rows_of(predict(from_text(HEAD + peers).points[0]))
    assert found["delay.end_to_end", "p", "s"] == pytest.approx(15 + 2)
    # If it is p that roams, between b2 and b3, half of the messages cross the link, but so does its session.
    roaming = peers.replace("broker: b3", "brokers: [b2, b3], on: {mean: 9s}, off: {mean: 1s}")
    assert rows_of(predict(from_text(HEAD + roaming).points[0]))["delay.end_to_end", "p", "s"] is None


LIFE = "on: {mean: 20s}, off: {mean: 20s}"
NULLS = {
    "service of links": ("service: {link: {mean: 10ms}}", LIFE, "a session that moves over links with a service (s)"),
    "delay on the way": (
        "links: [{between: [b0, b1], delay: {mean: 1s}}]", LIFE, "a session that moves over links with a delay or a bandwidth (s)",
    ),
    "bandwidth on the way": (
        "links: [{between: [b1, b2], bandwidth: 1Mbit/s}]", LIFE, "the bytes of sessions that follow their peers over narrow links",
    ),
    "long queues at inputs": (
        "service: {broker_in: {mean: 300ms}}", LIFE, "a session that moves through brokers whose input queues are long (s)",
    ),
    "service that begins anew": (
        "", f"{LIFE}, session_service: {{mean: 10ms, law: deterministic}}",
        "the session of a peer that roams with service times that are deterministic (s)",
    ),
    "ON periods": ("", "on: {mean: 20s, law: uniform}, off: {mean: 20s}", "ON periods that are uniform, not exponential (s)"),
}  # fmt: skip


@pytest.mark.parametrize("case", NULLS)
def test_no_prediction_where_the_transfer_matters(case: str, from_text: FromText) -> None:
    keys, life, reason = NULLS[case]
    peers = f"{keys}\n{LINE}subscribers: [{{id: s, brokers: [b0, b2], topic: t, {life}}}, {{id: r, broker: b2, topic: t}}]\n"
    peers += "publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]\n"
    prediction = predict(from_text(HEAD + peers).points[0])
    found = rows_of(prediction)
    assert found["delay.end_to_end", "p", "s"] is None
    assert found["rate.moved",] is None
    assert found["delivery.ratio", "p", "s"] == found["delivery.ratio", "p", "r"] == 1.0
    assert found["rate.notifications",] is not None
    assert any(f"there is no model of {reason}" in note for note in prediction.notes), prediction.notes
    if case != "bandwidth on the way":
        assert found["delay.end_to_end", "p", "r"] is not None


def test_nothing_moves_at_qos_0_and_what_comes_while_the_peer_is_off_is_dropped(from_text: FromText) -> None:
    peers = "subscribers: [{id: s, brokers: [b0, b2], topic: t, qos: 0, on: {mean: 30s}, off: {mean: 10s}}]\n"
    peers += "publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]\n"
    found = rows_of(predict(from_text(HEAD + LINE + peers).points[0]))
    assert found["rate.moved",] == 0.0
    assert found["delivery.ratio", "p", "s"] == pytest.approx(0.75)
    assert found["delay.end_to_end", "p", "s"] == 0.0


def test_publisher_that_roams_has_the_same_queue_and_half_of_the_messages_at_each_broker(from_text: FromText) -> None:
    """Its queue waits in the client: Toff^2 / (Ton + Toff) = 2.5 s, and moves with it, not over links."""
    peers = "publishers: [{id: p, brokers: [b0, b2], topic: t, rate: 4/s, on: {mean: 30s}, off: {mean: 10s}}]\n"
    peers += "subscribers: [{id: s, broker: b0, topic: t}]\n"
    found = rows_of(predict(from_text(HEAD + LINE + peers).points[0]))
    assert found["delay.end_to_end", "p", "s"] == pytest.approx(2.5)
    assert (found["rate.moved",], found["rate.control",]) == (0.0, 0.0)
    assert found["rate.notifications", "b2>b1"] == found["rate.notifications", "b1>b0"] == pytest.approx(2.0)
    advertised = rows_of(predict(from_text(HEAD + LINE + "routing: advertisement\n" + peers).points[0]))
    assert advertised["table.advertisements",] == pytest.approx(1.0)  # on both links while it is at b2
    # each link: an advertisement comes or goes once per cycle, and the subscriber above it is told of it or not
    assert advertised["rate.control",] == pytest.approx(2 * (2 * 0.5 / 40 + 0.5 / 40))


def test_too_many_placements_have_no_delays(from_text: FromText) -> None:
    brokers = ", ".join(f"b{number}" for number in range(17))
    peers = "service: {broker_in: {mean: 1ms}}\ntopology: {tree: star, brokers: 17}\n"
    peers += "".join(f"{kind}: [{{id: {name}, brokers: [{brokers}], topic: t, {LIFE}{more}}}]\n"
                     for kind, name, more in (("subscribers", "s", ""), ("publishers", "p", ", rate: 1/s")))  # fmt: skip
    prediction = predict(from_text(HEAD + peers).points[0])
    assert rows_of(prediction)["delay.end_to_end", "p", "s"] is None
    assert any("the 2 peers that roam have 289 placements" in note for note in prediction.notes)
    assert not math.isnan(rows_of(prediction)["rate.notifications",] or math.nan)
