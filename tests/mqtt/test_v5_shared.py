"""MQTT 5: shared subscriptions. Clauses are those of the MQTT 5 standard."""

import contextlib

import mqtt5
import pytest
from mqtt5 import PubAckPacket, PubAckReasonCode, PublishPacket

from tests.mqtt.client5 import Client5, wanted
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import ConnectionEndedError, packet, string
from tests.mqtt.servers import mosquitto_departs, skip_on_mosquitto


def take_all(client: Client5) -> list[int]:
    """The numbers of all messages that have come, acknowledged."""
    numbers = []
    while came := client.ping():
        client._set_aside.extend(came)
        numbers.append(int(client.take().payload))
    return numbers


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_mqtt_4_8_2(dial: Dial, topic: str, qos: int) -> None:
    members = [dial.v5() for _ in range(3)]
    for member in members:
        assert member.subscribe(wanted(f"$share/g/{topic}", qos)) == [qos]
    publisher = dial.v5()
    for number in range(30):
        publisher.publish(topic, b"%d" % number, qos)
    taken = [take_all(member) for member in members]
    assert sorted(number for numbers in taken for number in numbers) == list(range(30))
    assert all(taken), f"nobody is left out: {taken}"


def test_groups_and_plain_subscriptions_are_independent_mqtt_4_8_2(dial: Dial, topic: str) -> None:
    one, two, plain = dial.v5(), dial.v5(), dial.v5()
    one.subscribe(f"$share/one/{topic}")
    two.subscribe(f"$share/two/{topic}")
    plain.subscribe(topic)
    dial.v5().publish(topic, b"1")
    assert [take_all(client) for client in (one, two, plain)] == [[1], [1], [1]]


def test_shared_and_plain_of_one_client_are_two_subscriptions_mqtt_4_8_2(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(f"$share/g/{topic}", subscription_id=1)
    client.subscribe(topic, subscription_id=2)
    assert client.unsubscribe(topic) == [0]
    client.publish(topic, b"1")
    message = client.take()
    assert (message.topic, message.subscription_ids) == (topic, [1])
    assert client.unsubscribe(f"$share/other/{topic}", f"$share/g/{topic}") == [0x11, 0]
    client.publish(topic, b"2")
    client.quiet()


def test_shared_wildcard_matches_mqtt_4_8_2(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(f"$share/g/{topic}/+/#")
    for name in ("", "/b", "/b/c"):
        client.publish(topic + name, b"1")
    assert [client.take().topic, client.take().topic] == [topic + "/b", topic + "/b/c"]
    client.quiet()


@pytest.mark.parametrize("handling", [0, 1])
@mosquitto_departs("it sends them (4.8.2)")
def test_shared_subscription_gets_no_retained_messages_mqtt_3_3_1_9(dial: Dial, topic: str, handling: int) -> None:
    client = dial.v5()
    client.publish(topic, b"kept", retain=True)
    client.subscribe(wanted(f"$share/g/{topic}", handling=handling))
    client.quiet()


@mosquitto_departs("it grants this (MQTT-3.8.3-4)")
def test_shared_with_no_local_is_a_protocol_error_mqtt_3_8_3_4(dial: Dial, topic: str) -> None:
    bystander, client = dial.v5(), dial.v5()
    client.send(mqtt5.SubscribePacket(1, [wanted(f"$share/g/{topic}", no_local=True)]).write())
    client.refused(0x82)
    bystander.quiet()


@pytest.mark.parametrize(
    "name", ["$share//t", "$share/g", "$share/g/", "$share/a+b/t", "$share/#/t", "$share/+/t", "$share/g/a/#/b"]
)
def test_invalid_share_is_not_granted_mqtt_4_8_2_2(dial: Dial, name: str) -> None:
    if name in ("$share//t", "$share/g", "$share/g/", "$share/+/t"):
        skip_on_mosquitto("it grants this (MQTT-4.8.2-2)")
    bystander, client = dial.v5(), dial.v5()
    client.send(packet(0x82, b"\x00\x01\x00", string(name), b"\x00"))
    with contextlib.suppress(ConnectionEndedError):
        answer = client.receive()
        if isinstance(answer, mqtt5.SubAckPacket):
            assert [int(code) for code in answer.reason_codes] == [0x8F]
        else:
            assert isinstance(answer, mqtt5.DisconnectPacket)
            assert int(answer.reason_code) in (0x81, 0x82, 0x8F)
    bystander.quiet()


def test_granted_qos_is_respected_mqtt_4_8_2_3(dial: Dial, topic: str) -> None:
    """Each member has its own."""
    low, high = dial.v5(), dial.v5()
    low.subscribe(wanted(f"$share/g/{topic}", 0))
    high.subscribe(wanted(f"$share/g/{topic}", 2))
    publisher = dial.v5()
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 2)
    for client, qos in ((low, 0), (high, 2)):
        messages = []
        while came := client.ping():
            client._set_aside.extend(came)
            messages.append(client.take())
        assert {int(message.qos) for message in messages} == {qos}


def test_member_that_leaves_gets_no_more_mqtt_4_8_2(dial: Dial, topic: str) -> None:
    stays, leaves, gone = dial.v5(), dial.v5(), dial.v5()
    for member in (stays, leaves, gone):
        member.subscribe(f"$share/g/{topic}")
    leaves.unsubscribe(f"$share/g/{topic}")
    gone.disconnect()
    publisher = dial.v5()
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 1)
    assert take_all(stays) == list(range(10))
    leaves.quiet()


def test_delivery_begun_is_completed_by_the_same_member_mqtt_4_8_2_4(dial: Dial, topic: str) -> None:
    """A QoS 2 message a member has received waits for it, and goes to nobody else."""
    client_id = unique()
    member = dial.v5(client_id, session_expiry_interval=60)
    member.subscribe(f"$share/g/{topic}")
    dial.v5().publish(topic, b"1", 2)
    first = member.expect(PublishPacket)
    other = dial.v5()
    other.subscribe(f"$share/g/{topic}")
    member.drop()
    member = dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    again = member.take()
    assert (again.packet_id, again.payload, again.duplicate) == (first.packet_id, b"1", True)
    other.quiet()


def test_message_refused_by_a_member_is_discarded_mqtt_4_8_2_6(dial: Dial, topic: str) -> None:
    members = [dial.v5(), dial.v5()]
    for member in members:
        member.subscribe(f"$share/g/{topic}")
    dial.v5().publish(topic, b"1", 1)
    came = [member.ping() for member in members]
    (index,) = [index for index, messages in enumerate(came) if messages]
    members[index]._set_aside.extend(came[index])
    packet_id = members[index].expect(PublishPacket).packet_id
    assert packet_id is not None
    members[index].send(PubAckPacket(packet_id, reason_code=PubAckReasonCode.UNSPECIFIED_ERROR).write())
    members[index].quiet()
    members[1 - index].quiet()


@mosquitto_departs("its offline member may be the one chosen, which the standard leaves open")
def test_connected_member_is_preferred(dial: Dial, topic: str) -> None:
    """Not asked by the standard, but what a queue of workers expects: work goes to who is there."""
    client_id, present = unique(), dial.v5()
    present.subscribe(f"$share/g/{topic}")
    away = dial.v5(client_id, session_expiry_interval=60)
    away.subscribe(f"$share/g/{topic}")
    away.disconnect()
    publisher = dial.v5()
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 1)
    assert take_all(present) == list(range(10))


def test_old_clients_share_too(dial: Dial, topic: str) -> None:
    """3.1.1 does not know shared subscriptions, but Mosquitto and others give them to its clients."""
    old, new = dial.v311(), dial.v5()
    assert old.subscribe(f"$share/g/{topic}") == (2,)
    new.subscribe(f"$share/g/{topic}")
    publisher = dial.v5()
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 1)
    theirs = take_all(new)
    ours = [int(old.take().payload) for _ in range(10 - len(theirs))]
    assert sorted(theirs + ours) == list(range(10))
    assert theirs
    assert ours
