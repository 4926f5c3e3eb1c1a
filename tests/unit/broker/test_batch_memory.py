"""A batch is freed as soon as its last message is acknowledged, without the help of the garbage collector.

The broker's collector runs rarely, so reference cycles would keep hundreds of megabytes of old batches in memory.
"""

import gc

from brokerbed.broker.core.run import Batch
from tests.property.test_batches import World, publish_packet, short_packet, subscribe_packet

PUBLISHER, SUBSCRIBER, OTHER = 0, 2, 3


def test_acknowledged_batches_are_freed() -> None:
    world = World(True)
    for client in (PUBLISHER, SUBSCRIBER, OTHER):
        world.connect(client)
    for client in (SUBSCRIBER, OTHER):
        world.feed(client, subscribe_packet(client, "a", 1))
    gc.collect()
    gc.disable()
    try:
        world.feed(PUBLISHER, b"".join(publish_packet(PUBLISHER, "a", b"x", 1, number, False) for number in (1, 2, 3)))
        assert _batches() == 1
        for client in (SUBSCRIBER, OTHER):
            world.feed(client, b"".join(short_packet(0x40, number) for number in (1, 2, 3)))
        assert _batches() == 0
    finally:
        gc.enable()


def _batches() -> int:
    return sum(type(thing) is Batch for thing in gc.get_objects())
