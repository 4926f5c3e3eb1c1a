"""What it costs to add and remove one filter, and to forward a notification, where many filters are wanted already.

A client of a leaf subscribes and unsubscribes; the leaf and its parent are two broker cores in this process, joined
without sockets, so the figure is the processor time that both brokers spend on one change. There are groups of 100
filters `group/G/K`; in every tenth group somebody also wants `group/G/+`, which covers the others. Notifications come
from a client of the parent, each with another topic, so that no cache knows it.
"""

import argparse
import gc
import time
from collections.abc import Callable
from statistics import median

import mqtt5

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.run import Run, notification

SIZES = (1000, 10_000, 100_000)
ROUTINGS = ("identity", "covering", "merging")
GROUP = 100
COVERED_EVERY = 10  # one group in so many has a filter that covers the others
RUNS = 5
CHANGES = 400  # per run: subscribe and unsubscribe
NOW_NS = 1
KEEP = mqtt5.QoS(0)


class Pair:
    """A leaf with one client, and its parent."""

    def __init__(self, routing: str) -> None:
        self.root, self.leaf = (
            Broker(BrokerConfig(name=name, routing=routing, keep_alive_max_s=0, subscriptions_max=10**6))
            for name in ("root", "leaf")
        )
        up, down = self.leaf.opened(NOW_NS, is_wire=False, peer="root"), self.root.opened(NOW_NS, is_wire=False)
        self._peers: dict[Connection, tuple[Broker, Connection]] = {up: (self.root, down), down: (self.leaf, up)}
        self.leaf.overlay.dialled(up)
        self._client, self._publisher = (broker.opened(NOW_NS, is_wire=False) for broker in (self.leaf, self.root))
        self._send(self.leaf, self._client, mqtt5.ConnectPacket("client", keep_alive=0))
        self._send(self.root, self._publisher, mqtt5.ConnectPacket("publisher", keep_alive=0))

    def change(self, topic_filter: str, is_added: bool) -> None:
        if is_added:
            self._send(
                self.leaf, self._client, mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(topic_filter, max_qos=KEEP)])
            )
        else:
            self._send(self.leaf, self._client, mqtt5.UnsubscribePacket(1, [topic_filter]))

    def notify(self, topic: str) -> None:
        self._send(self.root, self._publisher, notification(topic, b""))

    def _send(self, broker: Broker, connection: Connection, packet: mqtt5.Packet | Run) -> None:
        broker.received_packet(connection, packet, NOW_NS)
        self._settle()

    def _settle(self) -> None:
        while self.leaf.dirty or self.root.dirty:
            for broker in (self.leaf, self.root):
                dirty, broker.dirty = broker.dirty, []
                for connection in dirty:
                    connection.is_dirty = False
                    output, connection.output = connection.output, []
                    peer = self._peers.get(connection)
                    if peer is not None:
                        for packet in output:
                            peer[0].received_packet(peer[1], packet, NOW_NS)


def filled(routing: str, size: int) -> Pair:
    pair = Pair(routing)
    for number in range(size):
        group, member = divmod(number, GROUP)
        pair.change(f"group/{group}/{member}", True)
    for group in range(0, size // GROUP, COVERED_EVERY):
        pair.change(f"group/{group}/+", True)
    return pair


def cost_us(work: Callable[[int], None], count: int) -> float:
    """Processor time in microseconds that each of `count` pieces of work takes: the median over runs."""
    times = []
    for run in range(RUNS):
        begun = time.process_time()
        for number in range(run * count, (run + 1) * count):
            work(number)
        times.append((time.process_time() - begun) / count)
    return 1e6 * median(times)


def changes(pair: Pair, topic_filters: list[str]) -> Callable[[int], None]:
    """Subscribes to one filter after the other, and unsubscribes at once."""

    def change(number: int) -> None:
        at, is_removed = divmod(number, 2)
        pair.change(topic_filters[at % len(topic_filters)], not is_removed)

    return change


def publications(pair: Pair, topic: str) -> Callable[[int], None]:
    return lambda number: pair.notify(topic.format(number))


def kinds_of_changes(size: int) -> dict[str, list[str]]:
    groups = size // GROUP
    spread = [number * 7 % groups for number in range(CHANGES)]
    return {
        "a filter that nothing covers": [f"other/{number}/x" for number in range(CHANGES)],
        "a filter that another one covers": [
            f"group/{group - group % COVERED_EVERY}/new{number}" for number, group in enumerate(spread)
        ],
        f"a filter that covers {GROUP} others": [
            f"group/{group - group % COVERED_EVERY + 1}/+" for group in spread[: CHANGES // 10]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.filter_changes", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="how many filters are wanted already")
    chosen = parser.parse_args()
    print(
        "Processor time of two brokers per change of one filter, or per notification, microseconds (ratio to identity)"
    )
    for size in chosen.sizes:
        costs: dict[str, dict[str, float]] = {}
        for routing in ROUTINGS:
            pair = filled(routing, size)
            gc.freeze()  # otherwise the collector would now and then look at all filters
            for kind, topic_filters in kinds_of_changes(size).items():
                costs.setdefault(kind, {})[routing] = cost_us(changes(pair, topic_filters), 2 * len(topic_filters))
            for kind, topic in (("wanted", "group/0/{}"), ("not wanted", "nowhere/{}")):
                costs.setdefault(f"a notification that is {kind}", {})[routing] = cost_us(
                    publications(pair, topic), CHANGES
                )
        print(f"{size} filters wanted:")
        for kind, by_routing in costs.items():
            base = by_routing[ROUTINGS[0]]
            figures = ", ".join(f"{it} {cost:.0f} ({cost / base:.1f})" for it, cost in by_routing.items())
            print(f"  {kind}: {figures}")


if __name__ == "__main__":
    main()
