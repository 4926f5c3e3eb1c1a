"""Two brokers, parent and child, with a relay between them and without: clients see the same."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvloop

from brokerbed.orchestrator.grounds.relay import Quality, Relay
from tests.broker.running import WAIT_S, Running, broker, metric, until
from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial

MESSAGES = 100  # of each QoS, each way
TOPICS = {"up": "to/the/parent", "down": "to/the/child"}
MS = 1_000_000


class Relayed:
    """A relay in the event loop of a thread; the test itself waits for clients."""

    def __init__(self, relay: Relay, loop: asyncio.AbstractEventLoop) -> None:
        self.port: int = asyncio.run_coroutine_threadsafe(relay.open(), loop).result(WAIT_S)
        self.relay = relay
        self._loop = loop

    def do(self, action: Callable[..., object], *arguments: str) -> object:
        async def act() -> object:
            return action(*arguments)

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(WAIT_S)


@contextmanager
def relayed(port: int, quality: Quality) -> Iterator[Relayed]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        made = Relayed(Relay(("127.0.0.1", port), quality, quality), loop)
        yield made
        made.do(made.relay.close)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


class Link:
    """Parent and child, a client at each that hears the other."""

    def __init__(self, stack: ExitStack, quality: Quality | None) -> None:
        parent = stack.enter_context(broker("--name", "parent", "--metrics-port", "0"))
        port = parent.ports["mqtt"]
        self.relayed = None if quality is None else stack.enter_context(relayed(port, quality))
        above = f"127.0.0.1:{self.relayed.port if self.relayed else port}"
        child = stack.enter_context(broker("--name", "child", "--parent", above, "--metrics-port", "0"))
        self.upper, self.lower = (stack.enter_context(connected(it)) for it in (parent, child))
        self.upper.subscribe(TOPICS["up"])
        self.lower.subscribe(TOPICS["down"])
        entries = "brokerbed_routing_entries"
        until(lambda: metric(parent, entries, scope="remote") == 1, "the child's interest at its parent")

    def exchange(self) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]]:
        """Payload and QoS of what arrived below and above."""
        for number in range(MESSAGES):
            for qos in (0, 1, 2):
                self.upper.publish(TOPICS["down"], b"%d" % number, qos)
                self.lower.publish(TOPICS["up"], b"%d" % number, qos)
        return taken(self.lower), taken(self.upper)


@contextmanager
def connected(running: Running) -> Iterator[Client5]:
    dial = Dial(running.ports["mqtt"])
    try:
        yield dial.v5()
    finally:
        dial.close()


def taken(client: Client5) -> list[tuple[bytes, int]]:
    packets = [client.take() for _ in range(3 * MESSAGES)]
    return [(bytes(packet.payload or b""), int(packet.qos)) for packet in packets]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as resources:
        yield resources


@pytest.mark.parametrize("quality", [None, Quality(), Quality(delay=lambda: MS, bandwidth_bit_per_s=50e6)])
def test_same_deliveries_with_and_without_a_relay(stack: ExitStack, quality: Quality | None) -> None:
    """At each QoS all messages in their order, on both ways; the first row is the link without a relay."""
    for got in Link(stack, quality).exchange():
        for qos in (0, 1, 2):
            assert [payload for payload, at in got if at == qos] == [b"%d" % number for number in range(MESSAGES)]


def test_cut_link_goes_on_where_it_was(stack: ExitStack) -> None:
    """A cut that is shorter than the keep-alive: the connection stays, nothing is lost, not even at QoS 0."""
    link = Link(stack, Quality())
    assert link.relayed is not None
    link.relayed.do(link.relayed.relay.hold, "up", "down")
    for number in range(MESSAGES):
        for qos in (0, 1, 2):
            link.lower.publish(TOPICS["up"], b"%d" % number, qos)
    assert link.relayed.do(link.relayed.relay.is_held, "up") is True
    link.relayed.do(link.relayed.relay.release, "up", "down")
    got = taken(link.upper)
    for qos in (0, 1, 2):
        assert [payload for payload, at in got if at == qos] == [b"%d" % number for number in range(MESSAGES)]
