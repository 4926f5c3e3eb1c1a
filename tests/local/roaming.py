"""Stock clients that go from broker to broker of a line, while brokers are killed: `python -m tests.local.roaming`.

Sessions follow their clients. Exit code 1 if a message was lost, doubled at QoS 2 or out of order.
"""

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.durability.brokers import COMMAND, HOST, BrokerProcess, brokerbed_chain

WAIT_S = 40.0
POLL_S = LOOP_S = 0.005
EXPIRY_S = 3600
CONFIG = "move_timeout_s = 60\n"  # longer than a broker takes to start again on a busy machine
KILL_S_MAX = 0.05  # from a client's CONNECT to a kill: about as long as most sessions are on their way


def until(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, f"not within {WAIT_S:.0f} s: {what}"
        time.sleep(POLL_S)


class Stock:
    """A paho client that keeps its session. It knows nothing of brokers that belong together."""

    def __init__(self, client_id: str, version: int, filters: dict[str, int] | None = None) -> None:
        is_5 = version == paho.MQTTv5
        clean = {} if is_5 else {"clean_session": False}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, **clean)  # type: ignore[arg-type]
        self.client.max_queued_messages_set(0)
        self.got: list[tuple[int, bytes]] = []
        self.acknowledged: set[int] = set()  # packet ids of its own publications
        self.client.on_publish = lambda _, __, mid, *___: self.acknowledged.add(mid)
        self.presents: list[bool] = []
        self.is_connected = threading.Event()
        self.broker: BrokerProcess | None = None  # to which it should be connected
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._filters = filters or {}
        self._options: dict[str, Any] = {"clean_start": False} if is_5 else {}
        if is_5:
            self._options["properties"] = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            self._options["properties"].SessionExpiryInterval = EXPIRY_S
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda _, __, message: self.got.append((message.qos, bytes(message.payload)))

    def _on_connect(self, client: paho.Client, _: Any, flags: Any, code: Any, __: Any) -> None:
        if code.is_failure:
            return
        self.presents.append(flags.session_present)
        if not flags.session_present:
            for topic_filter, qos in self._filters.items():
                client.subscribe(topic_filter, qos)
        self.is_connected.set()

    def _run(self) -> None:
        """Keep the client connected to the broker where it should be."""
        connected_to: BrokerProcess | None = None
        while not self._is_over.is_set():
            if connected_to is not self.broker and connected_to is not None:
                self.client.disconnect()
                connected_to = None
            if connected_to is None and self.broker is not None:
                with suppress(OSError):
                    self.client.connect(HOST, self.broker.port, 60, **self._options)
                    connected_to = self.broker
            if connected_to is None or self.client.loop(LOOP_S) != paho.MQTT_ERR_SUCCESS:
                connected_to = None
                time.sleep(LOOP_S)
        self.client.disconnect()

    def go(self, broker: BrokerProcess, is_awaited: bool = True) -> None:
        """Leave the broker where it is, and come to this one."""
        self.is_connected.clear()
        self.broker = broker
        if not self._thread.is_alive():
            self._thread.start()
        if is_awaited:
            self.await_connection()

    def await_connection(self) -> None:
        assert self.is_connected.wait(WAIT_S), "no CONNACK"

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def _listens(broker: BrokerProcess) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, broker.port)) == 0


@contextmanager
def line(folder: Path, routing: str = "identity") -> Iterator[list[BrokerProcess]]:
    (folder / "broker.toml").write_text(CONFIG, encoding="utf-8")
    command = (*COMMAND, "--config", str(folder / "broker.toml"))
    brokers = brokerbed_chain(folder, "abc", "process", routing, command)
    for broker in brokers:
        broker.start()
    try:
        for broker in brokers:
            until(partial(_listens, broker), f"{broker.name} listening")
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()


class Trip:
    """A subscriber that goes from broker to broker, and a publisher that stays at the one in the middle."""

    def __init__(self, brokers: list[BrokerProcess], version: int, seed: int) -> None:
        self.brokers = brokers
        self.random = Random(seed)
        self.subscriber = Stock(f"s{version}", version, {"t/1": 1, "t/2": 2})
        self.publisher = Stock(f"p{version}", paho.MQTTv5)
        self.published = [0, 0, 0]  # by QoS
        self.kills = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def begin(self) -> None:
        self.publisher.go(self.brokers[1])
        self.subscriber.go(self.brokers[0])
        time.sleep(0.5)  # its interest spreads
        self._thread.start()

    def _publish(self) -> None:
        """One message at a time: after a lost connection paho may send new messages before old ones."""
        while not self._is_over.is_set():
            qos = 1 + (self.published[1] + self.published[2]) % 2
            self.published[qos] += 1
            self.publisher.acknowledged.clear()
            sent = self.publisher.client.publish(f"t/{qos}", b"%d" % self.published[qos], qos)
            until(
                partial(self.publisher.acknowledged.__contains__, sent.mid),
                f"an acknowledgement of message {self.published[qos]} at QoS {qos}",
            )

    def step(self, is_killed: bool) -> None:
        """The client goes to another broker, maybe while one of the three is killed."""
        to = self.random.choice([it for it in self.brokers if it is not self.subscriber.broker])
        self.subscriber.go(to, is_awaited=False)
        if is_killed:
            time.sleep(self.random.uniform(0, KILL_S_MAX))
            victim = self.random.choice(self.brokers)
            victim.kill()
            self.kills += 1
            victim.start()
        self.subscriber.await_connection()
        time.sleep(self.random.uniform(0, 0.2))

    def end(self) -> list[str]:
        """What is wrong; nothing, if all is well."""
        self._is_over.set()
        self._thread.join()
        for qos in (1, 2):
            last = b"%d" % self.published[qos]
            until(lambda qos=qos, last=last: (qos, last) in self.subscriber.got, f"message {last!r} at QoS {qos}")  # type: ignore[misc]
        time.sleep(0.2)
        self.subscriber.stop()
        self.publisher.stop()
        found = []
        at_1 = list(dict.fromkeys(int(payload) for qos, payload in self.subscriber.got if qos == 1))
        at_2 = [int(payload) for qos, payload in self.subscriber.got if qos == 2]
        for qos, got in ((1, at_1), (2, at_2)):
            if got != list(range(1, self.published[qos] + 1)):
                wrong = next((pair for pair in enumerate(got, 1) if pair[0] != pair[1]), None)
                found.append(f"at QoS {qos} {len(got)} of {self.published[qos]} came, first wrong: {wrong}")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.roaming", description=__doc__)
    parser.add_argument(
        "--moves", type=int, default=100, help="how many (100), each with a kill -9 of one of the three"
    )
    parser.add_argument("--routing", default="identity")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roaming-") as folder, line(Path(folder), chosen.routing) as brokers:
        trip = Trip(brokers, paho.MQTTv5, chosen.seed)
        trip.begin()
        for number in range(chosen.moves):
            trip.step(True)
            if number % 10 == 9:
                print(f"{number + 1} moves, {len(trip.subscriber.got)} messages", flush=True)
        problems = trip.end()
        presents = trip.subscriber.presents
        print(f"{trip.kills} kills, {sum(trip.published)} messages published, {presents.count(False) - 1} new sessions")
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
