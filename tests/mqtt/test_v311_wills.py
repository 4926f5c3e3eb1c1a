"""MQTT 3.1.1: wills. Clauses are those of the 3.1.1 standard."""

import pytest

from tests.mqtt.client311 import Will
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import packet, string


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_is_published_when_the_network_fails_mqtt_3_1_2_8(dial: Dial, topic: str, qos: int) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"gone", qos)).drop()
    message = watcher.take()
    assert (message.topic, message.payload, message.qos, message.retain) == (topic, b"gone", qos, False)
    watcher.quiet()


def test_will_is_published_at_close_without_disconnect_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"gone")).close()
    assert watcher.take().payload == b"gone"


def test_will_is_published_after_a_violation_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    client = dial.v311(will=Will(topic, b"gone"))
    client.send(packet(0x36, string("t"), b"\x00\x01"))
    assert client.closed() == b""
    assert watcher.take().payload == b"gone"


def test_will_is_published_when_keep_alive_ends_mqtt_3_1_2_24(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"gone"), keep_alive=1)
    assert watcher.take().payload == b"gone"


def test_will_is_published_at_take_over_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    watcher, client_id = dial.v311(), unique()
    watcher.subscribe(topic)
    first = dial.v311(client_id, will=Will(topic, b"gone"))
    dial.v311(client_id)
    first.closed()
    assert watcher.take().payload == b"gone"


def test_will_is_discarded_at_disconnect_mqtt_3_14_4_3(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"gone")).disconnect()
    watcher.quiet()


def test_will_of_an_earlier_connection_is_gone_mqtt_3_1_2_10(dial: Dial, topic: str) -> None:
    """A will belongs to its connection, not to the session."""
    watcher, client_id = dial.v311(), unique()
    watcher.subscribe(topic)
    dial.v311(client_id, clean=False, will=Will(topic, b"gone")).disconnect()
    dial.v311(client_id, clean=False).drop()
    dial.v311(will=Will(topic, b"marker")).drop()
    assert watcher.take().payload == b"marker"


def test_will_retain_is_kept_mqtt_3_1_2_17(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"gone", 1, retain=True)).drop()
    assert watcher.take().retain is False
    late = dial.v311()
    late.subscribe(topic)
    message = late.take()
    assert (message.payload, message.retain) == (b"gone", True)


def test_will_without_retain_is_not_kept_mqtt_3_1_2_16(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"gone", 1)).drop()
    watcher.take()
    late = dial.v311()
    late.subscribe(topic)
    late.quiet()


def test_will_with_empty_payload_is_published_mqtt_3_1_2_8(dial: Dial, topic: str) -> None:
    watcher = dial.v311()
    watcher.subscribe(topic)
    dial.v311(will=Will(topic, b"")).drop()
    assert watcher.take().payload == b""


def test_will_waits_for_who_is_away_mqtt_3_1_2_5(dial: Dial, topic: str) -> None:
    """It is a message like any other."""
    witness, client_id = dial.v311(), unique()
    witness.subscribe(topic)
    client = dial.v311(client_id, clean=False)
    client.subscribe(topic)
    client.disconnect()
    dial.v311(will=Will(topic, b"gone", 1)).drop()
    witness.take()
    assert dial.v311(client_id, clean=False).take().payload == b"gone"
