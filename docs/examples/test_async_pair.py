"""A sensor and a dashboard on aiomqtt, in one coroutine: a broker between them is killed, and nothing is lost."""

import pytest

TREE = {"cloud": None, "office": "cloud", "site": "cloud"}


@pytest.mark.asyncio
async def test_dashboard_gets_every_reading(async_broker_network):
    network = await async_broker_network(TREE)
    async with network.client("office") as dashboard, network.client("site") as sensor:
        await dashboard.subscribe("plant/#", qos=1)
        await network.wait_until_calm()  # now all brokers know of the subscription

        await sensor.publish("plant/boiler", "reading 1", qos=1)
        await network.crash("cloud")  # kill -9
        await sensor.publish("plant/boiler", "reading 2", qos=1)
        await network.restart("cloud")

        readings = [(await anext(dashboard.messages)).payload for _ in range(2)]
        assert readings == [b"reading 1", b"reading 2"]
        await network.assert_nothing_lost()
