"""MQTT 3.1.1: SUBSCRIBE, UNSUBSCRIBE, filters and retained messages. Clauses are those of the 3.1.1 standard."""

import contextlib

import pytest

from tests.mqtt.client311 import Suback, subscribe, unsubscribe
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import ConnectionEndedError


def test_suback_has_a_code_per_filter_in_order_mqtt_3_9_3_1(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.send(subscribe(4660, (topic + "/0", 0), (topic + "/2", 2), (topic + "/1", 1)))
    assert client.packet() == b"\x90\x05\x12\x34\x00\x02\x01"


def test_several_filters_are_handled_in_order_mqtt_3_8_4_4(dial: Dial, topic: str) -> None:
    """The same filter twice in one packet: the later one replaces the earlier."""
    client = dial.v311()
    client.send(subscribe(1, (topic, 2), (topic, 0)))
    assert client.expect(Suback).codes == (2, 0)
    client.publish(topic, b"x", 2)
    assert client.take().qos == 0
    client.quiet()


MATCHES = [
    ("{}/b", ["{}/b"], ["{}", "{}/B", "{}/b/", "/{}/b", "{}/b/c"]),
    ("{}/+", ["{}/b", "{}/"], ["{}", "{}/b/c"]),
    ("{}/+/c", ["{}/b/c", "{}//c"], ["{}/b", "{}/b/c/d", "{}/c"]),
    ("{}/#", ["{}", "{}/", "{}/b", "{}/b/c"], ["{}b", "/{}"]),
    ("{}/b/#", ["{}/b", "{}/b/c/d"], ["{}", "{}/c"]),
    ("{}/+/#", ["{}/b", "{}/b/c", "{}/"], ["{}"]),
    ("{}/+/+", ["{}/b/c", "{}//"], ["{}/b", "{}/b/c/d"]),
    ("+/{}", ["a/{}", "/{}"], ["{}", "a/b/{}"]),
    ("+/{}/#", ["a/{}", "a/{}/b/c"], ["a/b/{}"]),
    ("/{}", ["/{}"], ["{}", "a/{}"]),
    ("/+/{}", ["/a/{}"], ["a/{}", "a/a/{}"]),
    ("{}//", ["{}//"], ["{}/", "{}///"]),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), MATCHES, ids=[pattern for pattern, _, _ in MATCHES])
def test_filter_matches_mqtt_4_7_1(dial: Dial, pattern: str, yes: list[str], no: list[str]) -> None:
    word = unique("w")
    client = dial.v311()
    assert client.subscribe(pattern.format(word), qos=0) == (0,)
    for name in no + yes:
        client.publish(name.format(word), b"x", 0)
    assert [client.take().topic for _ in yes] == [name.format(word) for name in yes]
    client.quiet()


@pytest.mark.parametrize("pattern", ["#", "+/{}", "+/#"])
def test_wildcard_first_does_not_match_dollar_topics_mqtt_4_7_2_1(dial: Dial, pattern: str) -> None:
    word = unique("w")
    client = dial.v311()
    client.subscribe(pattern.format(word), qos=0)
    publisher = dial.v311()
    publisher.publish(f"${word}/{word}", b"hidden", 0)
    publisher.publish(f"{word}/{word}", b"seen", 0)
    topics = []
    while (message := client.take()).topic != f"{word}/{word}":  # others' retained messages may come first
        topics.append(message.topic)
    assert not any(name.startswith("$") for name in topics)


@pytest.mark.parametrize("name", ["#/a", "a/#/b", "a#", "a/b#", "+a", "a+", "a/+b", "a/b+/c", "##", "++", ""])
def test_invalid_filter_is_not_granted_mqtt_4_7_1_2(dial: Dial, name: str) -> None:
    """A failure code or the end of the connection, as the server likes."""
    bystander, client = dial.v311(), dial.v311()
    client.send(subscribe(1, (name, 0)))
    with contextlib.suppress(ConnectionEndedError):
        assert client.expect(Suback) == Suback(1, (0x80,))
    bystander.quiet()


def test_overlapping_subscriptions_respect_the_highest_qos_mqtt_3_3_5_1(dial: Dial) -> None:
    """One copy or one for each, as the server likes; never none at the highest QoS."""
    client, word = dial.v311(), unique("w")
    client.subscribe(f"{word}/b", qos=0)
    client.subscribe(f"{word}/#", qos=2)
    client.subscribe(f"{word}/+", qos=1)
    dial.v311().publish(f"{word}/b", b"x", 2)
    copies = [client.take()]
    while came := client.ping():
        client._set_aside.extend(came)
        copies.append(client.take())
    assert len(copies) <= 3
    assert max(copy.qos for copy in copies) == 2
    assert {copy.payload for copy in copies} == {b"x"}


def test_same_filter_replaces_the_subscription_mqtt_3_8_4_3(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.publish(topic, b"kept", retain=True)
    for qos in (2, 0, 1):
        assert client.subscribe(topic, qos=qos) == (qos,)
        assert client.take().retain  # sent again at each subscription
    client.publish(topic, b"x", 2)
    assert client.take().qos == 1
    client.quiet()


def test_unsubscribe_stops_delivery_mqtt_3_10_4_2(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.subscribe(topic, topic + "/b")
    client.send(unsubscribe(4660, topic))
    assert client.packet() == b"\xb0\x02\x12\x34"
    client.publish(topic, b"1")
    client.publish(topic + "/b", b"2")
    assert client.take().payload == b"2"
    client.quiet()


def test_unsubscribe_unknown_filter_is_acknowledged_mqtt_3_10_4_5(dial: Dial, topic: str) -> None:
    dial.v311().unsubscribe(topic)


def test_unsubscribe_compares_characters_mqtt_3_10_4_1(dial: Dial, topic: str) -> None:
    """Wildcards in it match nothing but themselves."""
    client = dial.v311()
    client.subscribe(topic, topic + "/+")
    client.unsubscribe(topic + "/#", "#", "+/a")
    client.publish(topic, b"1")
    client.publish(topic + "/b", b"2")
    assert [client.take().payload, client.take().payload] == [b"1", b"2"]
    client.unsubscribe(topic + "/+")
    client.publish(topic + "/b", b"3")
    client.quiet()


def test_unsubscribe_several_mqtt_3_10_4_6(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.subscribe(topic, topic + "/b", topic + "/c")
    client.unsubscribe(topic, topic + "/c")
    for name in ("", "/b", "/c"):
        client.publish(topic + name, b"x")
    assert client.take().topic == topic + "/b"
    client.quiet()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_message_goes_to_new_subscribers_mqtt_3_3_1_6(dial: Dial, topic: str, qos: int) -> None:
    dial.v311().publish(topic, b"kept", qos, retain=True)
    for granted in (0, 1, 2):
        client = dial.v311()
        client.subscribe(topic, qos=granted)
        message = client.take()
        assert (message.payload, message.retain, message.dup) == (b"kept", True, False)  # MQTT-3.3.1-8
        assert message.qos == min(qos, granted)
        client.quiet()


def test_retain_flag_is_off_for_established_subscriptions_mqtt_3_3_1_9(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.subscribe(topic)
    client.publish(topic, b"x", retain=True)
    assert client.take().retain is False


def test_retained_message_is_replaced_mqtt_3_3_1_5(dial: Dial, topic: str) -> None:
    client = dial.v311()
    for payload, qos in ((b"1", 2), (b"2", 1), (b"3", 0)):
        client.publish(topic, payload, qos, retain=True)
    client.subscribe(topic)
    message = client.take()
    assert (message.payload, message.qos) == (b"3", 0)
    client.quiet()


def test_retained_message_is_cleared_by_empty_payload_mqtt_3_3_1_10(dial: Dial, topic: str) -> None:
    watcher, client = dial.v311(), dial.v311()
    watcher.subscribe(topic)
    client.publish(topic, b"x", retain=True)
    client.publish(topic, b"", retain=True)
    assert [watcher.take().payload, watcher.take().payload] == [b"x", b""]  # processed as normal, too
    client.subscribe(topic)
    client.quiet()  # and nothing empty is kept (MQTT-3.3.1-11)


def test_publish_without_retain_keeps_the_retained_one_mqtt_3_3_1_12(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.publish(topic, b"kept", retain=True)
    client.publish(topic, b"passing")
    client.publish(topic, b"")
    client.subscribe(topic)
    assert client.take().payload == b"kept"
    client.quiet()


def test_retained_messages_of_a_wildcard_mqtt_3_3_1_6(dial: Dial) -> None:
    word = unique("w")
    client = dial.v311()
    names = [f"{word}/{name}" for name in ("a", "b", "b/c", "d/c/e")] + [word]
    for name in names:
        client.publish(name, name.encode(), retain=True)
    for pattern, expected in (
        (f"{word}/#", set(names)),
        (f"{word}/+", {f"{word}/a", f"{word}/b"}),
        (f"{word}/+/c", {f"{word}/b/c"}),
        (f"+/b/c/{word}", set()),
    ):
        client.subscribe(pattern)
        assert {client.take().topic for _ in expected} == expected
        client.quiet()
