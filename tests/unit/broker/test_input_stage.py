"""The emulated service at a broker's input holds no more than a queue may: what comes on top is dropped or refused."""

from typing import Any

import mqtt5
import pytest

from brokerbed.log.record import FIELDS, RECORD, WAITED, Kind, Log, Reason
from tests.core_client import NS_PER_S, Client, World


def served_in(seconds: int) -> dict[str, Any]:
    return {"service_in": lambda: seconds * NS_PER_S}


def joined(world: World) -> tuple[Client, Client]:
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(keep_alive=0)
    subscriber.subscribe("t")
    return publisher, subscriber


def dropped(log: Log) -> list[dict[str, Any]]:
    events = (dict(zip((name for name, _ in FIELDS), it, strict=True)) for it in RECORD.iter_unpack(log.records))
    return [it for it in events if it["kind"] == Kind.DROPPED]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_beyond_the_limit_are_dropped_and_the_others_get_through(qos: int) -> None:
    log = Log()
    world = World(log, queue_messages_max=5, keep_alive_max_s=0, **served_in(1))
    publisher, subscriber = joined(world)
    for number in range(8):
        publisher.publish("t", b"%d" % number, qos=qos)
    assert world.broker.entering == 5
    world.wait(6)
    assert subscriber.payloads() == [b"0", b"1", b"2", b"3", b"4"]
    assert world.broker.entering == 0
    assert sum(world.broker.counters.dropped.values()) == 3
    assert world.broker.counters.dropped[Reason.INPUT_FULL] == 3
    events = dropped(log)
    assert [it["sequence"] for it in events] == [6, 7, 8]
    assert {(it["reason"], it["flags"], it["subject"]) for it in events} == {
        (Reason.INPUT_FULL, WAITED, log.number("p"))
    }
    publisher.publish("t", b"later", qos=qos)
    world.wait(2)
    assert subscriber.payloads() == [b"later"]


def test_bytes_are_limited_as_well() -> None:
    world = World(queue_bytes_max=10_000, keep_alive_max_s=0, **served_in(1))
    publisher, subscriber = joined(world)
    for _ in range(8):
        publisher.publish("t", bytes(3000))
    assert world.broker.counters.dropped[Reason.INPUT_FULL] == 5
    world.wait(4)
    assert len(subscriber.payloads()) == 3
    publisher.publish("t", bytes(3000))
    world.wait(2)
    assert len(subscriber.payloads()) == 1


def test_with_the_policy_reject_the_publisher_is_told() -> None:
    world = World(queue_messages_max=2, queue_policy="reject", keep_alive_max_s=0, **served_in(1))
    publisher, subscriber = joined(world)
    codes = []
    for number in range(4):
        publisher.publish("t", b"%d" % number, qos=1)
        answer = publisher.read()
        assert isinstance(answer, mqtt5.PubAckPacket)
        codes.append(int(answer.reason_code))
    assert codes == [0, 0, 0x97, 0x97]
    assert world.broker.counters.rejected == 2
    assert world.broker.counters.dropped[Reason.INPUT_FULL] == 0
    world.wait(3)
    assert subscriber.payloads() == [b"0", b"1"]
