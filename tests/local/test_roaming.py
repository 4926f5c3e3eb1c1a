"""Stock clients whose sessions follow them along a line of three broker processes. See also `tests.local.roaming`."""

import asyncio
from pathlib import Path

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.durability.brokers import HOST, BrokerProcess
from tests.local.roaming import EXPIRY_S, Trip, line

STEPS, KILLS = 6, 5


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_paho_client_moves_under_load(version: int, tmp_path: Path) -> None:
    with line(tmp_path) as brokers:
        trip = Trip(brokers, version, 1)
        trip.begin()
        for _ in range(STEPS):
            trip.step(False)
        assert trip.end() == []
        assert trip.subscriber.presents == [False] + [True] * STEPS


def test_kill_in_the_middle_of_a_move_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with line(tmp_path) as brokers:
        trip = Trip(brokers, paho.MQTTv5, 2)
        trip.begin()
        for _ in range(KILLS):
            trip.step(True)
        assert trip.end() == []
        assert trip.kills == KILLS
        assert trip.subscriber.presents.count(False) == 1


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
def test_aiomqtt_client_finds_what_waited_at_another_broker(version: aiomqtt.ProtocolVersion, tmp_path: Path) -> None:
    def client(broker: BrokerProcess) -> aiomqtt.Client:
        if version == aiomqtt.ProtocolVersion.V311:
            return aiomqtt.Client(HOST, broker.port, identifier="s", protocol=version, clean_session=False)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = EXPIRY_S
        return aiomqtt.Client(
            HOST, broker.port, identifier="s", protocol=version, clean_start=False, properties=properties
        )

    async def trip(brokers: list[BrokerProcess]) -> list[int]:
        async with client(brokers[0]) as there:
            await there.subscribe("t", qos=2)
        async with aiomqtt.Client(HOST, brokers[1].port) as publisher:
            for number in range(20):
                await publisher.publish("t", b"%d" % number, qos=2)
        got = []
        async with client(brokers[2]) as here:
            async for message in here.messages:
                assert isinstance(message.payload, bytes)
                got.append(int(message.payload))
                if len(got) == 20:
                    break
        return got

    with line(tmp_path) as brokers:
        assert asyncio.run(asyncio.wait_for(trip(brokers), 60)) == list(range(20))
