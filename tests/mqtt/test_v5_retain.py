"""MQTT 5: retained messages and the subscription options about them. Clauses are those of the MQTT 5 standard."""

import pytest

from tests.mqtt.client5 import wanted
from tests.mqtt.dial import Dial


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published_mqtt_3_3_1_13(dial: Dial, topic: str, retain: bool, as_published: bool) -> None:
    """0: the flag is off on delivery (MQTT-3.3.1-12); 1: it is what the publisher set."""
    client = dial.v5()
    client.subscribe(wanted(topic, as_published=as_published))
    client.publish(topic, b"x", retain=retain)
    assert client.take().retain is (retain and as_published)


@pytest.mark.parametrize("as_published", [False, True])
def test_retained_message_has_the_flag_at_subscription_mqtt_3_3_1_8(dial: Dial, topic: str, as_published: bool) -> None:
    client = dial.v5()
    client.publish(topic, b"x", retain=True)
    client.subscribe(wanted(topic, as_published=as_published))
    assert client.take().retain is True


@pytest.mark.parametrize(
    ("handling", "first", "again"), [(0, True, True), (1, True, False), (2, False, False)], ids=["always", "new", "never"]
)  # fmt: skip
def test_retain_handling_mqtt_3_3_1_9(dial: Dial, topic: str, handling: int, first: bool, again: bool) -> None:
    """MQTT-3.3.1-9, MQTT-3.3.1-10 and MQTT-3.3.1-11, at a new subscription and at one that existed."""
    client = dial.v5()
    client.publish(topic, b"kept", retain=True)
    for expected in (first, again):
        client.subscribe(wanted(topic, handling=handling))
        if expected:
            assert client.take().payload == b"kept"
        client.quiet()
    client.publish(topic, b"live")
    assert client.take().payload == b"live"


def test_retain_handling_1_after_unsubscription_is_new_mqtt_3_3_1_10(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.publish(topic, b"kept", retain=True)
    client.subscribe(wanted(topic, handling=1))
    client.take()
    client.unsubscribe(topic)
    client.subscribe(wanted(topic, handling=1))
    assert client.take().payload == b"kept"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_message_is_replaced_and_cleared_mqtt_3_3_1_5(dial: Dial, topic: str, qos: int) -> None:
    client = dial.v5()
    client.publish(topic, b"1", 2, retain=True)
    client.publish(topic, b"2", qos, retain=True)
    client.publish(topic, b"passing", qos)  # MQTT-3.3.1-8
    client.subscribe(topic)
    message = client.take()
    assert (message.payload, message.qos) == (b"2", qos)
    client.publish(topic, b"", qos, retain=True)  # MQTT-3.3.1-6
    assert client.take().payload == b""
    client.subscribe(topic)
    client.quiet()


def test_retained_message_keeps_its_properties_mqtt_3_3_2_17(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.publish(
        topic, b"x", retain=True, payload_format_indicator=1, content_type="text/plain", response_topic="answer/here",
        correlation_data=b"\x00\xff", user_properties=[("b", "1"), ("a", "2"), ("b", "1")],
    )  # fmt: skip
    client.subscribe(topic)
    message = client.take()
    assert message.payload_format_indicator == 1
    assert (message.content_type, message.response_topic) == ("text/plain", "answer/here")
    assert message.correlation_data == b"\x00\xff"
    assert message.user_properties == [("b", "1"), ("a", "2"), ("b", "1")]


def test_retained_messages_of_overlapping_filters_mqtt_3_8_4_5(dial: Dial, topic: str) -> None:
    """Two filters in one packet are two subscriptions: each brings the retained message."""
    client = dial.v5()
    client.publish(topic, b"x", retain=True)
    client.subscribe(topic, topic + "/#")
    assert [client.take().payload, client.take().payload] == [b"x", b"x"]
    client.quiet()
