"""MQTT 5: wills, their delay and their properties. Clauses are those of the MQTT 5 standard."""

import pytest
from mqtt5 import QoS, Will

from tests.mqtt.client5 import Client5, wanted
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import let_pass, packet, string
from tests.mqtt.servers import mosquitto_departs, skip_on_mosquitto

DELAY_S, AFTER_DELAY_S = 2, 3.2  # long enough to reconnect in, and over for a server that looks once a second too
LONG_S = 3600


def watcher(dial: Dial, topic: str) -> Client5:
    client = dial.v5()
    client.subscribe(wanted(topic, as_published=True))
    return client


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_will_is_published_when_the_network_fails_mqtt_3_1_2_8(dial: Dial, topic: str, qos: int, retain: bool) -> None:
    """Retained or not as the will says (MQTT-3.1.2-14, MQTT-3.1.2-15)."""
    watching = watcher(dial, topic)
    dial.v5(will=Will(topic, payload=b"gone", qos=QoS(qos), retain=retain)).drop()
    message = watching.take()
    assert (message.payload, message.qos, message.retain) == (b"gone", qos, retain)
    late = dial.v5()
    late.subscribe(topic)
    if retain:
        assert late.take().payload == b"gone"
    late.quiet()


def test_will_is_discarded_at_normal_disconnection_mqtt_3_14_4_3(dial: Dial, topic: str) -> None:
    watching = watcher(dial, topic)
    dial.v5(will=Will(topic, payload=b"gone")).disconnect()
    watching.quiet()


@pytest.mark.parametrize("reason", [0x04, 0x80, 0x82])
def test_will_is_published_at_disconnect_with_another_reason_mqtt_3_1_2_8(dial: Dial, topic: str, reason: int) -> None:
    watching = watcher(dial, topic)
    if reason != 0x04:
        skip_on_mosquitto("it publishes the will at 0x04 only (MQTT-3.1.2-8)")
    dial.v5(will=Will(topic, payload=b"gone")).disconnect(reason)
    assert watching.take().payload == b"gone"


def test_will_is_published_after_a_protocol_error_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    watching = watcher(dial, topic)
    client = dial.v5(will=Will(topic, payload=b"gone"))
    client.send(packet(0x36, string("t"), b"\x00\x01\x00"))  # QoS 3
    client.refused(0x81)
    assert watching.take().payload == b"gone"


def test_will_properties_are_forwarded_mqtt_3_1_3_10(dial: Dial, topic: str) -> None:
    watching = watcher(dial, topic)
    will = Will(
        topic, payload=b"gone", payload_format_indicator=1, content_type="text/plain", response_topic="answer/here",
        correlation_data=b"\x00\xff", message_expiry_interval=100, user_properties=[("b", "1"), ("a", "2"), ("b", "1")],
    )  # fmt: skip
    dial.v5(will=will).drop()
    message = watching.take()
    assert message.payload_format_indicator == 1
    assert (message.content_type, message.response_topic) == ("text/plain", "answer/here")
    assert message.correlation_data == b"\x00\xff"
    assert message.user_properties == [("b", "1"), ("a", "2"), ("b", "1")]
    assert message.message_expiry_interval is not None
    assert 98 <= message.message_expiry_interval <= 100


def test_will_waits_for_its_delay_mqtt_3_1_3_2_2(dial: Dial, topic: str) -> None:
    """It comes after the will of a client that went later, and had no delay."""
    watching = watcher(dial, topic)
    delayed = Will(topic, payload=b"delayed", will_delay_interval=1)
    dial.v5(will=delayed, session_expiry_interval=60).drop()
    dial.v5(will=Will(topic, payload=b"at once"), session_expiry_interval=60).drop()
    assert watching.take().payload == b"at once"
    assert watching.take().payload == b"delayed"


def test_will_is_cancelled_by_a_new_connection_mqtt_3_1_3_9(dial: Dial, topic: str) -> None:
    """Also when that connection has a will of its own, which is published. Both at once: the time passes once."""
    client_id, watching = unique(), watcher(dial, topic)
    will = Will(topic, payload=b"gone", will_delay_interval=DELAY_S)
    dial.v5(client_id, will=will, session_expiry_interval=60).drop()
    dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    other_id, other_topic = unique(), topic + "/replaced"
    other_watching = watcher(dial, other_topic)
    old = Will(other_topic, payload=b"old", will_delay_interval=DELAY_S)
    dial.v5(other_id, will=old, session_expiry_interval=60).drop()
    new = Will(other_topic, payload=b"new")
    dial.v5(other_id, will=new, clean_start=False, session_expiry_interval=60).drop()
    assert other_watching.take().payload == b"new"
    let_pass(AFTER_DELAY_S)
    watching.quiet()
    other_watching.quiet()


@mosquitto_departs("it waits although the session has ended (MQTT-3.1.2-8)")
def test_will_is_published_when_the_session_ends_first_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    """Session expiry 1 s, and 0, each before a long delay."""
    watching = watcher(dial, topic)
    will = Will(topic, payload=b"soon", will_delay_interval=LONG_S)
    dial.v5(will=will, session_expiry_interval=1).drop()
    dial.v5(will=Will(topic, payload=b"at once", will_delay_interval=LONG_S)).drop()
    assert watching.take().payload == b"at once"
    assert watching.take().payload == b"soon"


@mosquitto_departs("it drops the will (MQTT-3.1.2-8)")
def test_will_is_published_when_clean_start_ends_the_session_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    client_id, watching = unique(), watcher(dial, topic)
    will = Will(topic, payload=b"gone", will_delay_interval=LONG_S)
    dial.v5(client_id, will=will, session_expiry_interval=60).drop()
    watching.quiet()
    dial.v5(client_id, clean_start=True)
    assert watching.take().payload == b"gone"


TAKE_OVERS = {
    "no_delay": (0, 60, False, True),
    "delay_and_session_goes_on": (LONG_S, 60, False, False),
    "delay_and_session_without_expiry": (LONG_S, 0, False, True),
    "delay_and_clean_start": (LONG_S, 60, True, True),
}


@pytest.mark.parametrize("name", TAKE_OVERS)
def test_will_at_take_over_mqtt_3_1_4_3(dial: Dial, topic: str, name: str) -> None:
    """It is sent when the connection closes, unless delayed, or when the old session ends."""
    delay, expiry, clean_start, published = TAKE_OVERS[name]
    if published:
        skip_on_mosquitto("it drops the will (MQTT-3.1.2-8)")
    client_id, watching = unique(), watcher(dial, topic)
    will = Will(topic, payload=b"gone", will_delay_interval=delay)
    first = dial.v5(client_id, will=will, session_expiry_interval=expiry)
    dial.v5(client_id, clean_start=clean_start, session_expiry_interval=60)
    first.refused(0x8E)
    if published:
        assert watching.take().payload == b"gone"
    watching.quiet()


def test_will_reaches_its_own_session(dial: Dial, topic: str) -> None:
    """A client subscribed to its own will finds it when it comes back."""
    client_id = unique()
    client = dial.v5(client_id, will=Will(topic, payload=b"gone", qos=QoS(1)), session_expiry_interval=60)
    client.subscribe(topic)
    watching = watcher(dial, topic)
    client.drop()
    watching.take()
    assert dial.v5(client_id, clean_start=False).take().payload == b"gone"
