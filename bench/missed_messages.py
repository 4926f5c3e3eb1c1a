"""What a client misses that leaves a broker and comes back at another one: brokerbed, and bridged Mosquitto brokers.

`python -m bench.missed_messages [--messages 1000]`. Two brokers, west and east, are connected: those of brokerbed by a
link, those of Mosquitto by a bridge (`topic # both 2`). A paho client keeps its session and subscribes at west at QoS
2. It leaves, messages are published, and it comes back at east. Messages are published again while it is there; then
it leaves and returns to west. Where it gets a new session it subscribes anew, as clients do. All messages are published
at east at QoS 2, and the publisher waits until they are acknowledged.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from bench.brokers import MOSQUITTO_QOS2, OURS, Broker, BrokerError, only_present, stop_on_sigterm
from bench.clients import HOST, LoadError
from bench.loop import Loop
from bench.tree_speed import running_tree
from bench.workloads import Workload

TOPIC, QOS = "news", 2
WEST_AND_EAST = (None, 0)
MESSAGES, MESSAGES_MAX = 1000, 20_000
QUIET_S = 1.0  # nothing more is expected after a silence of this length
WAIT_S_MAX = 60.0
LOOP_S = 0.01
CELLS = "{:12}{:>10}{:>18}{:>22}{:>16}{:>14}"


class RoamingClient:
    def __init__(self) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2, "phone", protocol=paho.MQTTv311, clean_session=False)
        self.client.on_connect = lambda client, _, flags, *__: self._connected(client, flags.session_present)
        self.client.on_subscribe = lambda *_: self._ready()
        self.client.on_message = lambda _, __, message: self._received(int(message.payload))
        self.numbers: list[int] = []
        self.is_ready = False
        self.last_s = 0.0  # when something came

    def _connected(self, client: paho.Client, is_session_present: bool) -> None:
        if is_session_present:
            self._ready()
        else:
            client.subscribe(TOPIC, QOS)

    def _ready(self) -> None:
        self.is_ready, self.last_s = True, time.monotonic()

    def _received(self, number: int) -> None:
        self.numbers.append(number)
        self.last_s = time.monotonic()

    def come_to(self, port: int) -> list[int]:
        """Connect, and receive until nothing more comes; returns what came."""
        self.is_ready, before = False, len(self.numbers)
        self.client.connect(HOST, port)
        self.client.loop_start()
        await_that(lambda: self.is_ready, "a session")
        self.await_silence()
        return self.numbers[before:]

    def await_silence(self) -> None:
        await_that(lambda: time.monotonic() - self.last_s > QUIET_S, "silence")

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def await_that(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        if time.monotonic() > end_s:
            raise LoadError(f"no {what} after {WAIT_S_MAX:.0f} s")
        time.sleep(LOOP_S)


def publish(port: int, numbers: range) -> None:
    publisher = paho.Client(CallbackAPIVersion.VERSION2, "publisher")
    publisher.max_queued_messages_set(0)
    publisher.connect(HOST, port)
    publisher.loop_start()
    for sent in [publisher.publish(TOPIC, b"%d" % number, QOS) for number in numbers]:
        sent.wait_for_publish(WAIT_S_MAX)
    publisher.disconnect()
    publisher.loop_stop()


def report(broker: Broker, messages: int) -> None:
    with running_tree(broker, WEST_AND_EAST) as (west, east):
        for one, other in ((west, east), (east, west)):  # until messages pass in both directions
            with ExitStack() as stack:
                Loop(Workload(), one.port, other.port, stack)
        client = RoamingClient()
        client.come_to(west.port)
        client.leave()
        publish(east.port, range(messages))
        moved = client.come_to(east.port)
        before = len(client.numbers)
        publish(east.port, range(messages, 2 * messages))
        client.await_silence()
        there = client.numbers[before:]
        client.leave()
        back = client.come_to(west.port)
        client.leave()
    late = set(back) & set(range(messages)) - set(moved)
    missed = set(range(2 * messages)) - set(client.numbers)
    doubled = len(client.numbers) - len(set(client.numbers))
    print(CELLS.format(broker.name, len(moved), len(there), len(late), doubled, len(missed)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.missed_messages", description="A client that moves.")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="how many are published each time")
    options = parser.parse_args()
    if not 0 < options.messages <= MESSAGES_MAX:
        parser.error(f"up to {MESSAGES_MAX} messages")
    stop_on_sigterm()
    brokers = only_present([OURS, MOSQUITTO_QOS2])
    print(f"{options.messages} messages while the client is away, and {options.messages} while it is at east")
    print(CELLS.format("", "at east", "published there", "late, back at west", "delivered twice", "never came"))
    for broker in brokers:
        try:
            report(broker, options.messages)
        except (BrokerError, LoadError, OSError) as error:
            print(f"{broker.name:12} failed: {error or type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
