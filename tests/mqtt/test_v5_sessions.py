"""MQTT 5: session expiry, clean start, and what waits for those who are away. Clauses are those of the MQTT 5 standard."""

import mqtt5
import pytest

from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import let_pass

FOREVER = 0xFFFFFFFF
AFTER_ONE_S = 2.2  # a second has certainly passed, for a server that looks once a second too


def leave(dial: Dial, topic: str, expiry: int, at_disconnect: int | None = None) -> str:
    """A client id that was subscribed with this session expiry interval, and has disconnected."""
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=expiry)
    client.subscribe(topic)
    client.disconnect(session_expiry=at_disconnect)
    return client_id


def present(dial: Dial, client_id: str) -> bool:
    return dial.v5(client_id, clean_start=False).connack.session_present


def test_session_present_follows_the_session_mqtt_3_2_2_3(dial: Dial) -> None:
    client_id = unique()
    seen = []
    for clean, expiry in ((True, 60), (False, 60), (True, 60), (False, 0), (False, 60)):
        client = dial.v5(client_id, clean_start=clean, session_expiry_interval=expiry)
        seen.append(client.connack.session_present)
        client.disconnect()
    # new; kept; discarded (MQTT-3.2.2-2); kept, now with expiry 0; ended with its connection
    assert seen == [False, True, False, True, False]


def test_session_ends_with_the_connection_by_default_mqtt_3_1_2_11_2(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v5(client_id)
    client.subscribe(topic)
    client.drop()
    publisher = dial.v5()
    publisher.publish(topic, b"x")
    again = dial.v5(client_id, clean_start=False)
    assert not again.connack.session_present
    publisher.publish(topic, b"y")
    again.quiet()


@pytest.mark.parametrize("expiry", [60, FOREVER])
def test_session_is_kept_mqtt_3_1_2_23(dial: Dial, topic: str, expiry: int) -> None:
    client_id = leave(dial, topic, expiry)
    dial.v5().publish(topic, b"x")
    client = dial.v5(client_id, clean_start=False)
    assert client.connack.session_present
    assert client.take().payload == b"x"


def test_session_expires_mqtt_4_1_0_2(dial: Dial, topic: str) -> None:
    """Three at once, so that the time passes once: expired, not yet, and cut short in DISCONNECT."""
    expired, kept, shortened = leave(dial, topic, 1), leave(dial, topic, 60), leave(dial, topic, 60, at_disconnect=1)
    connected = dial.v5(session_expiry_interval=1)
    connected.subscribe(topic)
    let_pass(AFTER_ONE_S)
    assert (present(dial, expired), present(dial, kept), present(dial, shortened)) == (False, True, False)
    dial.v5().publish(topic, b"x")
    assert connected.take().payload == b"x"  # expiry counts from the end of the connection (MQTT-4.1.0-1)


@pytest.mark.parametrize(("at_connect", "at_disconnect", "kept"), [(60, 0, False), (60, None, True), (60, FOREVER, True), (0, 0, False)])  # fmt: skip
def test_disconnect_changes_session_expiry_mqtt_3_14_2_2_2(
    dial: Dial, topic: str, at_connect: int, at_disconnect: int | None, kept: bool
) -> None:
    assert present(dial, leave(dial, topic, at_connect, at_disconnect)) is kept


def test_disconnect_cannot_raise_session_expiry_from_0_mqtt_3_14_2_2_2(dial: Dial) -> None:
    client_id = unique()
    client = dial.v5(client_id)
    client.send(mqtt5.DisconnectPacket(session_expiry_interval=60).write())
    client.refused(0x82)
    assert not present(dial, client_id)


def test_clean_start_discards_the_session_mqtt_3_1_2_4(dial: Dial, topic: str) -> None:
    client_id = leave(dial, topic, 60)
    publisher = dial.v5()
    publisher.publish(topic, b"x")
    client = dial.v5(client_id, clean_start=True, session_expiry_interval=60)
    assert not client.connack.session_present
    publisher.publish(topic, b"y")
    client.quiet()


def test_resumed_session_has_the_new_expiry_mqtt_3_1_2_11_2(dial: Dial, topic: str) -> None:
    client_id = leave(dial, topic, 60)
    dial.v5(client_id, clean_start=False, session_expiry_interval=0).disconnect()
    assert not present(dial, client_id)


def test_subscription_options_survive_mqtt_3_1_2_5(dial: Dial, topic: str) -> None:
    """A subscription is stored with its identifier and options."""
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    options = mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_LEAST_ONCE, no_local=True, retain_as_published=True)
    client.subscribe(options, subscription_id=17)
    client.disconnect()
    client = dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    client.publish(topic, b"mine")
    dial.v5().publish(topic, b"x", 2, retain=True)
    message = client.take()
    assert (message.payload, message.qos, message.retain, message.subscription_ids) == (b"x", 1, True, [17])
    client.quiet()


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_in_order_mqtt_4_6_0_5(dial: Dial, topic: str, qos: int) -> None:
    client_id, publisher = leave(dial, topic, 60), dial.v5()
    for number in range(50):
        publisher.publish(topic, b"%d" % number, qos)
    client = dial.v5(client_id, clean_start=False, receive_max=7)
    publisher.publish(topic, b"50", qos)  # newer than what waits: delivered after it
    messages = [client.take() for _ in range(51)]
    assert [int(message.payload) for message in messages] == list(range(51))
    assert not any(message.duplicate for message in messages)
    client.quiet()


def test_take_over_goes_on_with_the_session_mqtt_3_1_2_5(dial: Dial, topic: str) -> None:
    client_id = unique()
    first = dial.v5(client_id, session_expiry_interval=60)
    first.subscribe(topic)
    dial.v5().publish(topic, b"x")
    seen = first.expect(mqtt5.PublishPacket)
    second = dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    assert second.connack.session_present
    again = second.take()
    assert (again.duplicate, again.packet_id, again.payload) == (True, seen.packet_id, b"x")
    first.refused(0x8E)


def test_session_passes_between_versions(dial: Dial, topic: str) -> None:
    """A client may come back with the other version of the protocol; its session is the same."""
    client_id = leave(dial, topic, 60)
    publisher = dial.v5()
    publisher.publish(topic, b"1", user_properties=[("k", "v")])
    old = dial.v311(client_id, clean=False)
    assert old.connack.session_present
    assert old.take().payload == b"1"
    old.disconnect()
    publisher.publish(topic, b"2")
    new = dial.v5(client_id, clean_start=False)
    assert new.connack.session_present
    assert new.take().payload == b"2"
