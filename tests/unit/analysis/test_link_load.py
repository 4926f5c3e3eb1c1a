"""Bytes on links, worked out by hand from the packets of MQTT 5, and how long they take."""

import pytest

from brokerbed.analysis.predict import predict
from tests.conftest import MINIMAL, FromText
from tests.unit.analysis.test_predict import rows

LINE = MINIMAL + "topology: {tree: line, brokers: 3}\n"
PEERS = "publishers: [{id: p, broker: b2, topic: metro/4, rate: RATE/s, qos: QOS}]\nsubscribers: [{id: s, broker: b0, topic: metro/4}]\n"
NARROW = "links: [{between: [b2, b1], bandwidth: 64kbit/s}]\n"
# The length of the rest is one byte below 128, else two. User property: identifier, 2 + 15 bytes of its name, 2 + 21 of its value.
PUBLISH = 1 + 2 + (2 + 7) + 1 + (1 + 2 + 15 + 2 + 21) + 64 - 1
BANDWIDTH = 64_000


def text(rate: float, qos: int, links: str = NARROW) -> str:
    return LINE + PEERS.replace("RATE", str(rate)).replace("QOS", str(qos)) + links


def utilisation(from_text: FromText, scenario: str) -> dict[str, float | None]:
    found = rows(from_text, scenario)
    return {labels[0]: value for (metric, *labels), value in found.items() if metric == "link.utilisation"}


@pytest.mark.parametrize(
    ("qos", "up", "down"),
    [
        (0, PUBLISH, 0),
        (1, PUBLISH + 2, 4),
        (2, PUBLISH + 2 + 4, 4 + 4),
    ],  # with a packet id, PUBACK; PUBREC, PUBREL, PUBCOMP
)
def test_notification_and_its_acknowledgements(from_text: FromText, qos: int, up: int, down: int) -> None:
    found = utilisation(from_text, text(10, qos))
    assert found.keys() == {"b2>b1", "b1>b2"}
    assert found["b2>b1"] == pytest.approx(10 * up * 8 / BANDWIDTH)
    assert found["b1>b2"] == pytest.approx(10 * down * 8 / BANDWIDTH)


def test_subscriptions_and_their_acknowledgements(from_text: FromText) -> None:
    """One arrival per second at b2 for a mean of 1 s: interest appears with e^-1 per second, and as often it disappears.

    SUBSCRIBE: 2 + 2 + 1 + (2 + 10) + 1, UNSUBSCRIBE without the options; SUBACK and UNSUBACK: 2 + 2 + 1 + 1."""
    classes = "subscriptions: {lifetime: {mean: 1s}, at: [{broker: b2, class: 0, arrival_rate: 1/s}]}\n"
    found = utilisation(from_text, LINE + classes + NARROW)
    appearing = 2.718281828459045**-1
    assert found["b2>b1"] == pytest.approx(appearing * (18 + 17) * 8 / BANDWIDTH)
    assert found["b1>b2"] == pytest.approx(appearing * (6 + 6) * 8 / BANDWIDTH)


def test_narrow_link_is_a_queue_of_fixed_service_times(from_text: FromText) -> None:
    """Pollaczek and Khinchine: a packet waits S rho / (2 (1 - rho)), and takes S; the constant delay comes after that."""
    service_s = PUBLISH * 8 / BANDWIDTH
    load = 40 * service_s
    found = rows(from_text, text(40, 0))
    assert found["delay.end_to_end", "p", "s"] == pytest.approx(service_s + service_s * load / 2 / (1 - load))
    delayed = NARROW.replace("bandwidth", "delay: {mean: 20ms, law: deterministic}, bandwidth")
    again = rows(from_text, text(40, 0, delayed))
    assert again["delay.end_to_end", "p", "s"] == pytest.approx(0.02 + found["delay.end_to_end", "p", "s"])


def test_saturated_link_is_named_and_what_depends_on_it_has_no_prediction(from_text: FromText) -> None:
    both = "links: [{between: [b2, b1], bandwidth: 64kbit/s}, {between: [b1, b0], bandwidth: 64kbit/s}]\n"
    (scenario,) = from_text(text(70, 0, both)).points
    prediction = predict(scenario)
    assert [(queue.stage, queue.at) for queue in prediction.unstable] == [("link", "b2>b1")]  # the other one gets less
    assert prediction.unstable[0].utilisation == pytest.approx(70 * PUBLISH * 8 / BANDWIDTH)
    found = {(row.metric, *row.labels.values()): row.predicted for row in prediction.rows}
    for row in (("link.utilisation", "b2>b1"), ("link.utilisation", "b1>b0"), ("rate.notifications",),
                ("delay.end_to_end", "p", "s"), ("delivery.ratio", "p", "s"), ("rate.received", "b0")):  # fmt: skip
        assert found[row] is None
    assert found["link.utilisation", "b0>b1"] == found["link.utilisation", "b1>b2"] == 0
    acknowledged = utilisation(from_text, text(70, 1, both))
    assert acknowledged["b0>b1"] is None  # fewer acknowledgements, too


def test_links_behind_a_saturated_one_are_unknown_and_others_are_not(from_text: FromText) -> None:
    star = MINIMAL + "topology: {tree: star, brokers: 3}\nrouting: flooding\n"
    peers = "publishers: [{id: p, broker: b1, topic: metro/4, rate: 70/s, qos: 0}, {id: q, broker: b2, topic: metro/4, rate: 10/s, qos: 0}]\n"
    links = "links: [{between: [b1, b0], bandwidth: 64kbit/s}, {between: [b2, b0], bandwidth: 1Mbit/s}]\n"
    found = utilisation(from_text, star + peers + links)
    assert found["b1>b0"] is None
    assert found["b0>b2"] is None
    assert found["b2>b0"] == pytest.approx(10 * PUBLISH * 8 / 1e6)
    assert found["b0>b1"] == pytest.approx(10 * PUBLISH * 8 / BANDWIDTH)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("payload: 8\n", "a payload of 8 bytes is too short"),
        ("routing: advertisement\nrefresh: 5s\n", "advertisements that come and go or are repeated"),
    ],
)
def test_bytes_that_are_unknown_are_not_predicted(from_text: FromText, more: str, said: str) -> None:
    prediction = predict(from_text(text(10, 1) + more).points[0])
    found = {row.labels["link"]: row.predicted for row in prediction.rows if row.metric == "link.utilisation"}
    assert found == {"b2>b1": None, "b1>b2": None}
    assert said in prediction.notes[0]
    assert next(row.predicted for row in prediction.rows if row.metric == "rate.notifications") is not None


def test_several_narrow_links_in_a_row_are_noted(from_text: FromText) -> None:
    both = "links: [{between: [b2, b1], bandwidth: 64kbit/s}, {between: [b1, b0], bandwidth: 64kbit/s}]\n"
    (note,) = predict(from_text(text(10, 0, both)).points[0]).notes
    assert "several narrow links one after the other (b2>b1, b1>b0)" in note
