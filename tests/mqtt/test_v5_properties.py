"""MQTT 5: properties of messages, request and response, and message expiry. Clauses are those of the MQTT 5 standard."""

from typing import Any

import pytest

from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import let_pass, packet, string
from tests.mqtt.servers import mosquitto_departs

AFTER_ONE_S = 2.2  # a second has certainly passed, for a server that looks once a second too

PROPERTIES: dict[str, dict[str, Any]] = {
    "payload_format_mqtt_3_3_2_4": {"payload_format_indicator": 1},
    "content_type_mqtt_3_3_2_20": {"content_type": "application/x-水"},
    "empty_content_type_mqtt_3_3_2_20": {"content_type": ""},
    "response_topic_mqtt_3_3_2_15": {"response_topic": "answer/to/é"},
    "correlation_data_mqtt_3_3_2_16": {"correlation_data": bytes(range(256))},
    "empty_correlation_data_mqtt_3_3_2_16": {"correlation_data": b""},
    "user_properties_mqtt_3_3_2_17": {"user_properties": [("z", "1"), ("a", "2"), ("z", "1"), ("", ""), ("é", "水")]},
    "many_user_properties_mqtt_3_3_2_18": {"user_properties": [(f"k{n}", f"v{n}") for n in range(100)]},
}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("name", PROPERTIES)
def test_property_is_forwarded_unaltered(dial: Dial, topic: str, name: str, qos: int) -> None:
    properties = PROPERTIES[name]
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    client.publish(topic, b"x", qos, **properties)
    client.publish(topic, b"plain", qos)
    message, plain = subscriber.take(), subscriber.take()
    for key, value in properties.items():
        assert getattr(message, key) == value
        assert getattr(plain, key) != value  # and does not stick to the next one


def test_properties_are_forwarded_byte_for_byte_mqtt_3_3_2_17(dial: Dial, topic: str) -> None:
    """Put together by hand: a codec that errs in both directions would not be noticed otherwise."""
    properties = (
        b"\x01\x01"  # payload format
        b"\x03\x00\x04text"  # content type
        b"\x08\x00\x02r/"  # response topic
        b"\x09\x00\x03\x00\xff\x01"  # correlation data
        b"\x26\x00\x01b\x00\x011"  # user properties
        b"\x26\x00\x01a\x00\x012"
    )
    sent = packet(0x30, string(topic), bytes([len(properties)]), properties, b"payload")
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    client.send(sent)
    received = subscriber.packet()
    assert len(received) == len(sent)
    assert received[: 2 + 2 + len(topic) + 1] == sent[: 2 + 2 + len(topic) + 1]
    for part in (b"\x01\x01", b"\x03\x00\x04text", b"\x08\x00\x02r/", b"\x09\x00\x03\x00\xff\x01"):
        assert part in received  # in any order among them
    assert b"\x26\x00\x01b\x00\x011\x26\x00\x01a\x00\x012" in received  # these in order (MQTT-3.3.2-18)
    assert received.endswith(b"payload")


def test_properties_wait_with_the_message_mqtt_3_3_2_17(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic, subscription_id=9)
    client.disconnect()
    pairs = [("b", "1"), ("a", "2"), ("b", "1")]
    dial.v5().publish(topic, b"x", 2, user_properties=pairs, content_type="text", correlation_data=b"c")
    message = dial.v5(client_id, clean_start=False).take()
    assert message.user_properties == pairs
    assert (message.content_type, message.correlation_data, message.subscription_ids) == ("text", b"c", [9])


def test_request_is_answered_mqtt_4_10(dial: Dial, topic: str) -> None:
    asking, answering = dial.v5(), dial.v5()
    answering.subscribe(topic)
    asking.subscribe(topic + "/answer")
    asking.publish(topic, b"question", 1, response_topic=topic + "/answer", correlation_data=b"42")
    request = answering.take()
    assert request.response_topic is not None
    answering.publish(request.response_topic, b"answer", 1, correlation_data=request.correlation_data)
    answer = asking.take()
    assert (answer.payload, answer.correlation_data) == (b"answer", b"42")


@mosquitto_departs("it forwards such a response topic (MQTT-3.3.2-14)")
def test_response_topic_with_wildcard_is_an_error_mqtt_3_3_2_14(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.send(packet(0x30, string(topic), b"\x06\x08\x00\x03a/#", b"x"))
    client.refused(0x82, 0x81, 0x90)


def test_message_expiry_is_forwarded_mqtt_3_3_2_6(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(topic)
    client.publish(topic, b"x", 1, message_expiry_interval=100)
    left = client.take().message_expiry_interval
    assert left is not None
    assert 98 <= left <= 100  # delivered at once, on a machine that may be busy
    client.publish(topic, b"y", 1)
    assert client.take().message_expiry_interval is None


@mosquitto_departs("an expired message keeps its place in a full window (MQTT-3.3.2-5)")
def test_message_expiry_runs_while_waiting_mqtt_3_3_2_5(dial: Dial, topic: str) -> None:
    """For a session, for a full window and as retained message, so that the time passes once."""
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic)
    client.disconnect()
    busy, publisher = dial.v5(receive_max=1), dial.v5()
    busy.subscribe(topic)
    publisher.publish(topic, b"first", 1)
    publisher.publish(topic, b"short", 1, message_expiry_interval=1)
    publisher.publish(topic, b"long", 1, message_expiry_interval=100)
    publisher.publish(topic + "/short", b"short", 1, message_expiry_interval=1, retain=True)
    publisher.publish(topic + "/long", b"long", 1, message_expiry_interval=100, retain=True)
    let_pass(AFTER_ONE_S)
    client = dial.v5(client_id, clean_start=False)
    late = dial.v5()
    late.subscribe(topic + "/+")
    for receiver, expected in ((client, [b"first", b"long"]), (busy, [b"first", b"long"]), (late, [b"long"])):
        messages = [receiver.take() for _ in expected]
        receiver.quiet()
        assert [message.payload for message in messages] == expected
        left = messages[-1].message_expiry_interval
        assert left is not None
        assert left < 100  # minus the time it has waited (MQTT-3.3.2-6)


def test_message_expiry_0_is_delivered_to_who_is_there_mqtt_3_3_2_3_3(dial: Dial, topic: str) -> None:
    """It may live for no second at all: what is delivered at once was in time, and nothing is an error."""
    client = dial.v5()
    client.subscribe(topic)
    client.publish(topic, b"x", 1, message_expiry_interval=0)
    for message in client.ping():
        client._set_aside.append(message)
        assert client.take().payload == b"x"
    client.quiet()
