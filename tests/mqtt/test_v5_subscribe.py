"""MQTT 5: SUBSCRIBE and UNSUBSCRIBE, their options and identifiers. Clauses are those of the MQTT 5 standard."""

import contextlib

import mqtt5
import pytest
from mqtt5 import PublishPacket

from tests.mqtt.client5 import Client5, wanted
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import ConnectionEndedError, packet, string
from tests.mqtt.servers import mosquitto_departs


def copies(client: Client5) -> list[PublishPacket]:
    """All messages that have come, acknowledged."""
    taken = []
    while came := client.ping():
        client._set_aside.extend(came)
        taken.append(client.take())
    return taken


def test_suback_has_a_code_per_filter_in_order_mqtt_3_9_3_1(dial: Dial, topic: str) -> None:
    client = dial.v5()
    assert client.subscribe(wanted(topic, 0), wanted(topic + "/2", 2), wanted(topic + "/1", 1)) == [0, 2, 1]


@mosquitto_departs("it keeps the retain as published of the first (MQTT-3.8.4-3)")
def test_same_filter_replaces_the_subscription_mqtt_3_8_4_3(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(wanted(topic, 2), subscription_id=1)
    client.subscribe(wanted(topic, 1, as_published=True), subscription_id=2)
    client.publish(topic, b"x", 2, retain=True)
    message = client.take()
    assert (message.qos, message.retain, message.subscription_ids) == (1, True, [2])
    client.subscribe(wanted(topic, 0, handling=2))
    client.publish(topic, b"y", 2)
    message = client.take()
    assert (message.qos, message.subscription_ids) == (0, [])
    client.quiet()


@pytest.mark.parametrize("name", ["#/a", "a/#/b", "a#", "a/b#", "+a", "a+", "a/+b", "##", "++", ""])
def test_invalid_filter_is_not_granted_mqtt_4_7_1_1(dial: Dial, name: str) -> None:
    """0x8F in SUBACK or in DISCONNECT, or malformed, or a protocol error; granted never."""
    bystander, client = dial.v5(), dial.v5()
    client.send(packet(0x82, b"\x00\x01\x00", string(name), b"\x00"))
    with contextlib.suppress(ConnectionEndedError):
        answer = client.receive()
        if isinstance(answer, mqtt5.SubAckPacket):
            assert [int(code) for code in answer.reason_codes] == [0x8F]
            client.quiet()
        else:
            assert isinstance(answer, mqtt5.DisconnectPacket)
            assert int(answer.reason_code) in (0x81, 0x82, 0x8F)
            assert client.closed() == b""
    bystander.quiet()


@pytest.mark.parametrize("identifier", [1, 127, 128, 16384, 268_435_455])
def test_subscription_identifier_comes_with_the_message_mqtt_3_3_4_3(dial: Dial, topic: str, identifier: int) -> None:
    client = dial.v5()
    client.subscribe(topic, subscription_id=identifier)
    client.publish(topic, b"x", 2)
    assert client.take().subscription_ids == [identifier]


def test_retained_message_has_the_identifier_mqtt_3_3_4_3(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.publish(topic, b"x", retain=True)
    client.subscribe(topic, subscription_id=5)
    message = client.take()
    assert (message.retain, message.subscription_ids) == (True, [5])


def test_message_without_identifier_has_none_mqtt_3_3_4_3(dial: Dial, topic: str) -> None:
    """Identifiers are those of the receiving client; others have theirs."""
    first, second, third = dial.v5(), dial.v5(), dial.v5()
    first.subscribe(topic, subscription_id=1)
    second.subscribe(topic)
    third.subscribe(topic, subscription_id=3)
    first.publish(topic, b"x")
    assert [client.take().subscription_ids for client in (first, second, third)] == [[1], [], [3]]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_overlapping_subscriptions_send_all_identifiers_mqtt_3_3_4_4(dial: Dial, qos: int) -> None:
    """In one copy all of them, or in several copies each its own."""
    client, word = dial.v5(), unique("w")
    client.subscribe(wanted(f"{word}/b", 0), subscription_id=10)
    client.subscribe(wanted(f"{word}/#", 2), subscription_id=20)
    client.subscribe(wanted(f"{word}/+", 1))
    client.subscribe(wanted("+/b", 1), subscription_id=20)
    client.subscribe(wanted(f"{word}/c", 2), subscription_id=30)
    client.ping()  # others' retained messages for +/b
    client._set_aside.clear()
    dial.v5().publish(f"{word}/b", b"x", qos)
    messages = copies(client)
    assert 1 <= len(messages) <= 4
    if len(messages) > 1:
        assert all(len(message.subscription_ids) <= 1 for message in messages)
    assert {each for message in messages for each in message.subscription_ids} == {10, 20}
    assert max(int(message.qos) for message in messages) == qos  # the highest granted is 2 (MQTT-3.3.4-2)


def test_subscription_identifier_0_is_a_protocol_error_mqtt_3_8_2_1_2(dial: Dial) -> None:
    client = dial.v5()
    client.send(packet(0x82, b"\x00\x01\x02\x0b\x00", string("t"), b"\x00"))
    client.refused(0x82, 0x81)


def test_subscription_identifier_twice_is_a_protocol_error_mqtt_3_8_2_1_2(dial: Dial) -> None:
    client = dial.v5()
    client.send(packet(0x82, b"\x00\x01\x04\x0b\x01\x0b\x02", string("t"), b"\x00"))
    client.refused(0x82)


def test_no_local_keeps_own_messages_away_mqtt_3_8_3_3(dial: Dial, topic: str) -> None:
    client, other = dial.v5(), dial.v5()
    client.subscribe(wanted(topic, no_local=True))
    other.subscribe(topic)
    client.publish(topic, b"mine")
    other.publish(topic, b"theirs")
    assert client.take().payload == b"theirs"
    client.quiet()
    assert [other.take().payload, other.take().payload] == [b"mine", b"theirs"]


def test_no_local_is_per_subscription_mqtt_3_8_3_3(dial: Dial, topic: str) -> None:
    """Another filter without it still brings the client its own message."""
    client = dial.v5()
    client.subscribe(wanted(topic, no_local=True), subscription_id=1)
    client.subscribe(wanted(topic + "/#"), subscription_id=2)
    client.publish(topic, b"mine")
    (message,) = copies(client)
    assert message.subscription_ids == [2]


def test_no_local_holds_for_the_client_id_not_the_connection_mqtt_3_8_3_3(dial: Dial, topic: str) -> None:
    """A message of an earlier connection of the same client is its own, too."""
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(wanted(topic, no_local=True))
    client.publish(topic, b"mine")
    client.disconnect()
    client = dial.v5(client_id, clean_start=False)
    client.publish(topic, b"mine again")
    client.quiet()


@pytest.mark.parametrize("pattern", ["#", "+/{}", "+/#"])
def test_wildcard_first_does_not_match_dollar_topics_mqtt_4_7_2_1(dial: Dial, pattern: str) -> None:
    word = unique("w")
    client, publisher = dial.v5(), dial.v5()
    client.subscribe(wanted(pattern.format(word), 0, handling=2))
    publisher.publish(f"${word}/{word}", b"hidden", 0)
    publisher.publish(f"{word}/{word}", b"seen", 0)
    assert client.take().topic == f"{word}/{word}"


def test_unsubscribe_has_a_code_per_filter_mqtt_3_11_3_1(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(topic, topic + "/b")
    assert client.unsubscribe(topic + "/none", topic, topic + "/+", topic + "/b") == [0x11, 0, 0x11, 0]
    client.publish(topic, b"1")
    client.publish(topic + "/b", b"2")
    client.quiet()
    assert client.unsubscribe(topic) == [0x11]


def test_unsubscribe_completes_what_was_begun_mqtt_3_10_4_3(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(topic)
    dial.v5().publish(topic, b"x", 2)
    packet_id = client.expect(PublishPacket).packet_id
    assert packet_id is not None
    client.unsubscribe(topic)
    client.send(mqtt5.PubRecPacket(packet_id).write())
    assert client.expect(mqtt5.PubRelPacket).packet_id == packet_id


def test_user_properties_are_accepted_mqtt_3_8_2_1_3(dial: Dial, topic: str) -> None:
    client = dial.v5()
    pairs = [("k", "v"), ("k", "w")]
    client.send(mqtt5.SubscribePacket(1, [wanted(topic)], user_properties=pairs).write())
    assert client.expect(mqtt5.SubAckPacket).packet_id == 1
    client.send(mqtt5.UnsubscribePacket(2, [topic], user_properties=pairs).write())
    assert client.expect(mqtt5.UnsubAckPacket).packet_id == 2
