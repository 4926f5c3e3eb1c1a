"""MQTT 5: topic aliases, both ways. Clauses are those of the MQTT 5 standard."""

import pytest
from mqtt5 import PublishPacket

from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import packet, string
from tests.mqtt.servers import mosquitto_departs


def aliased(topic: str, alias: int, payload: bytes = b"x") -> bytes:
    """A QoS 0 PUBLISH with a topic alias, put together by hand, so that it can be wrong."""
    return packet(0x30, string(topic), b"\x03\x23", alias.to_bytes(2), payload)


def publisher(dial: Dial) -> tuple[Client5, int]:
    """A client, and the highest alias it may use."""
    client = dial.v5()
    highest = client.connack.topic_alias_max
    if highest == 0:
        pytest.skip("the server takes no topic aliases (topic alias maximum 0)")
    return client, highest


def test_alias_stands_for_its_topic_mqtt_3_3_2_12(dial: Dial, topic: str) -> None:
    """Set, used, set anew, used; the lowest and the highest. Subscribers see the topic, not the alias."""
    client, highest = publisher(dial)
    subscriber = dial.v5()
    subscriber.subscribe(topic + "/#")
    client.send(aliased(topic, 1), aliased("", 1), aliased("", 1))
    client.send(aliased(topic + "/b", highest), aliased("", highest))
    client.send(aliased(topic + "/c", 1), aliased("", 1))
    messages = [subscriber.take() for _ in range(7)]
    assert [message.topic for message in messages] == [topic] * 3 + [topic + "/b"] * 2 + [topic + "/c"] * 2
    assert {message.topic_alias for message in messages} == {None}


def test_alias_works_at_every_qos_mqtt_3_3_2_12(dial: Dial, topic: str) -> None:
    client, _ = publisher(dial)
    client.subscribe(topic)
    client.publish(topic, b"0", 0, topic_alias=1)
    client.publish("", b"1", 1, topic_alias=1)
    client.publish("", b"2", 2, topic_alias=1, retain=True)
    assert [(client.take().topic, number) for number in range(3)] == [(topic, number) for number in range(3)]
    late = dial.v5()
    late.subscribe(topic)
    assert late.take().payload == b"2"


def test_alias_above_the_maximum_is_refused_mqtt_3_3_2_9(dial: Dial, topic: str) -> None:
    client = dial.v5()
    if client.connack.topic_alias_max == 65535:
        pytest.skip("the server takes all topic aliases")
    client.send(aliased(topic, client.connack.topic_alias_max + 1))
    client.refused(0x94)


@mosquitto_departs("it calls this malformed")
def test_alias_0_is_refused_mqtt_3_3_2_8(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.send(aliased(topic, 0))
    client.refused(0x94, 0x82)


def test_unknown_alias_is_a_protocol_error_mqtt_3_3_2_3_4(dial: Dial) -> None:
    client, _ = publisher(dial)
    client.send(aliased("", 1))
    client.refused(0x82, 0x94)


def test_no_topic_and_no_alias_is_a_protocol_error_mqtt_3_3_2_1(dial: Dial) -> None:
    client = dial.v5()
    client.send(packet(0x30, string(""), b"\x00", b"x"))
    client.refused(0x82, 0x81, 0x90)


def test_alias_is_forgotten_with_the_connection_mqtt_3_3_2_7(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.publish(topic, b"x", 1, topic_alias=1)
    client.disconnect()
    client = dial.v5(client_id, clean_start=False)
    client.send(aliased("", 1))
    client.refused(0x82, 0x94)


def test_alias_is_of_one_client_mqtt_3_3_2_3_4(dial: Dial, topic: str) -> None:
    first, _ = publisher(dial)
    second, _ = publisher(dial)
    subscriber = dial.v5()
    subscriber.subscribe(topic + "/#")
    first.publish(topic + "/1", b"x", 1, topic_alias=1)
    second.publish(topic + "/2", b"x", 1, topic_alias=1)
    first.publish("", b"x", 1, topic_alias=1)
    second.publish("", b"x", 1, topic_alias=1)
    assert [subscriber.take().topic[-1] for _ in range(4)] == ["1", "2", "1", "2"]


@pytest.mark.parametrize("maximum", [0, 1, 2, 100])
def test_server_uses_aliases_within_the_clients_maximum_mqtt_3_3_2_11(dial: Dial, topic: str, maximum: int) -> None:
    """None at 0 (MQTT-3.1.2-27); and whatever it uses resolves to the right topic."""
    subscriber, client = dial.v5(topic_alias_max=maximum), dial.v5()
    subscriber.subscribe(topic + "/#")
    names = [f"{topic}/{number % 4}" for number in range(20)]
    for number, name in enumerate(names):
        client.publish(name, b"%d" % number, number % 3)
    known: dict[int, str] = {}
    seen: dict[int, str] = {}
    for _ in names:
        message = subscriber.take()
        seen[int(message.payload)] = resolve(message, known, maximum)
    assert [seen[number] for number in range(20)] == names


def resolve(message: PublishPacket, known: dict[int, str], maximum: int) -> str:
    """The topic of a message, by the aliases the server has set so far."""
    if message.topic_alias is not None:
        assert 0 < message.topic_alias <= maximum
        if message.topic:
            known[message.topic_alias] = message.topic
        return known[message.topic_alias]
    assert message.topic
    return message.topic


def test_redelivery_does_not_use_old_aliases_mqtt_3_3_2_7(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60, topic_alias_max=10)
    client.subscribe(topic)
    sender = dial.v5()
    for number in range(3):
        sender.publish(topic, b"%d" % number, 1)
    for _ in range(3):
        client.expect(PublishPacket)
    client.drop()
    client = dial.v5(client_id, clean_start=False, topic_alias_max=10)
    known: dict[int, str] = {}
    assert [resolve(client.take(), known, 10) for _ in range(3)] == [topic] * 3
