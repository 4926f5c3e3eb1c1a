"""What comes in one segment, and what changes between two messages: nothing is routed by what was true before."""

from typing import Any

import pytest
from mqtt5 import PublishPacket

from tests.mqtt.client5 import wanted
from tests.mqtt.client311 import DISCONNECT, Publish, Suback, Will, publish, subscribe, unsubscribe
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import PINGREQ, Conversation
from tests.mqtt.servers import mosquitto_departs

LARGE_BYTES = 20_000_000  # more than a broker buffers for one connection


def test_one_segment_is_processed_in_order(dial: Dial, topic: str) -> None:
    """Subscribed between two messages of one segment, and unsubscribed again."""
    client = dial.v311()
    client.send(
        publish(topic, b"before"), subscribe(1, (topic, 0)), publish(topic, b"between"), unsubscribe(2, topic),
        publish(topic, b"after"), PINGREQ,
    )  # fmt: skip
    assert client.expect(Suback) == Suback(1, (0,))
    assert client.expect(Publish).payload == b"between"
    assert client.packet()[0] == 0xB0
    assert client.packet()[0] == 0xD0


@pytest.mark.parametrize("size", [0, 64, 5000])
def test_burst_reaches_everyone_in_order(dial: Dial, topic: str, size: int) -> None:
    """Receivers of either version, at each QoS, by plain and by wildcard filters."""
    old = [dial.v311() for _ in range(3)]
    new = [dial.v5() for _ in range(3)]
    for qos, (first, second) in enumerate(zip(old, new, strict=True)):
        first.subscribe(topic, qos=qos)
        second.subscribe(topic + "/#", qos=qos, subscription_id=qos + 1)
    publisher = dial.v311()
    payloads = [b"%d " % number + bytes(size) for number in range(200)]
    publisher.send(*(publish(topic, payload) for payload in payloads))
    for client in old:
        assert [client.take().payload for _ in payloads] == payloads
    for qos, other in enumerate(new):
        messages = [other.take() for _ in payloads]
        assert [message.payload for message in messages] == payloads
        assert all(message.subscription_ids == [qos + 1] for message in messages)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_versions_mix_at_every_qos(dial: Dial, topic: str, qos: int) -> None:
    old, new = dial.v311(), dial.v5()
    old.subscribe(topic)
    new.subscribe(wanted(topic, as_published=True))
    new.publish(topic, b"from 5", qos, retain=True, user_properties=[("k", "v")], message_expiry_interval=100)
    old.publish(topic, b"from 3.1.1", qos, retain=True)
    assert [(message.payload, message.qos, message.retain) for message in (old.take(), old.take())] == [
        (b"from 5", qos, False), (b"from 3.1.1", qos, False),
    ]  # fmt: skip
    first, second = new.take(), new.take()
    assert (first.payload, first.retain, first.user_properties) == (b"from 5", True, [("k", "v")])
    assert (second.payload, second.retain, second.user_properties) == (b"from 3.1.1", True, [])


def test_topics_of_one_segment_are_told_apart(dial: Dial, topic: str) -> None:
    exact, wild, publisher = dial.v311(), dial.v5(), dial.v5()
    exact.subscribe(topic + "/2", topic + "/5", qos=0)
    wild.subscribe(topic + "/+", qos=0)
    publisher.send(*(PublishPacket(f"{topic}/{number % 7}", b"%d" % number).write() for number in range(70)))
    assert [int(wild.take().payload) for _ in range(70)] == list(range(70))
    expected = [number for number in range(70) if number % 7 in (2, 5)]
    assert [int(exact.take().payload) for _ in expected] == expected
    exact.quiet()


def test_change_of_subscription_takes_effect_at_once(dial: Dial, topic: str) -> None:
    """The publisher uses one topic all the time; who receives it changes in every way it can."""
    publisher, word = dial.v5(), topic.split("/")[0]
    exact, wild, member, old = dial.v5(), dial.v5(), dial.v5(), dial.v311()

    def receivers() -> list[str]:
        publisher.publish(topic, b"x", 0)
        names: dict[str, Conversation[Any]] = {"exact": exact, "wild": wild, "member": member, "old": old}
        return [name for name, client in names.items() for _ in client.ping()]

    assert receivers() == []
    exact.subscribe(topic, qos=0)
    assert receivers() == ["exact"]
    wild.subscribe(f"{word}/+", qos=0)
    assert receivers() == ["exact", "wild"]
    member.subscribe(f"$share/g/{topic}", qos=0)
    old.subscribe(f"{word}/#", qos=0)
    assert receivers() == ["exact", "wild", "member", "old"]
    wild.unsubscribe(f"{word}/+")
    assert receivers() == ["exact", "member", "old"]
    old.unsubscribe(f"{word}/#")
    exact.unsubscribe(topic)
    assert receivers() == ["member"]
    member.unsubscribe(f"$share/g/{topic}")
    assert receivers() == []


def test_change_of_connection_takes_effect_at_once(dial: Dial, topic: str) -> None:
    """Who has gone is not in the way, and who has come back is served, on the topic just used."""
    publisher, client_id = dial.v5(), unique()
    for _ in range(3):
        client = dial.v5(client_id, session_expiry_interval=60, clean_start=False)
        client.subscribe(topic)
        publisher.publish(topic, b"1", 1)
        assert client.take().payload == b"1"
        client.disconnect()
        publisher.publish(topic, b"2", 1)
        client = dial.v5(client_id, session_expiry_interval=60, clean_start=False)
        assert client.take().payload == b"2"
        publisher.publish(topic, b"3", 1)
        assert client.take().payload == b"3"
        client.drop()
    dial.v5(client_id, clean_start=True)
    assert publisher.publish(topic, b"4", 1) in (0, 0x10)


@mosquitto_departs("it keeps the no local of the first (MQTT-3.8.4-3)")
def test_change_of_options_takes_effect_at_once(dial: Dial, topic: str) -> None:
    client = dial.v5()
    for qos, no_local in ((0, False), (2, False), (1, True), (1, False)):
        client.subscribe(wanted(topic, qos, no_local=no_local), subscription_id=qos + 1)
        client.publish(topic, b"x", 2)
        if not no_local:
            message = client.take()
            assert (message.qos, message.subscription_ids) == (qos, [qos + 1])
        client.quiet()


def test_message_and_disconnect_in_one_segment(dial: Dial, topic: str) -> None:
    watching, client = dial.v311(), dial.v311(will=Will(topic, b"gone"))
    watching.subscribe(topic)
    client.send(publish(topic, b"last"), DISCONNECT, publish(topic, b"too late"))
    client.closed()
    assert watching.take().payload == b"last"
    watching.quiet()


def test_receiver_gone_in_the_middle_of_a_burst(dial: Dial, topic: str) -> None:
    """One of two receivers disappears while messages flow; the other gets all."""
    going, staying, publisher = dial.v5(), dial.v5(), dial.v5()
    going.subscribe(topic)
    staying.subscribe(topic)
    for number in range(100):
        if number == 50:
            going.drop()
        publisher.publish(topic, b"%d" % number, 1)
        assert int(staying.take().payload) == number
    staying.quiet()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_larger_than_the_write_buffer_arrives_once(dial: Dial, topic: str, qos: int) -> None:
    """Such a message makes the transport call back while it is being written."""
    old, new, publisher = dial.v311(), dial.v5(), dial.v5()
    old.subscribe(topic)
    new.subscribe(topic)
    publisher.publish(topic, bytes(LARGE_BYTES), qos)
    for client in (old, new):
        assert len(client.take().payload) == LARGE_BYTES
        client.quiet()
    publisher.publish(topic, b"after", qos)
    assert [old.take().payload, new.take().payload] == [b"after", b"after"]
