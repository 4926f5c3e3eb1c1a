"""What honest clients notice of a client that loads the broker, compared with Mosquitto.

`python -m bench.fairness [--seconds 5] [--only NAME]...`, where NAME is a case or a broker. One honest client publishes
to a topic of its own at QoS 0 and waits until the message has come back, then pauses for a moment. The output has its
round trips. It and four others have a keep-alive of 2 s and send a PINGREQ every second; the output has the number of
those that the broker cut off. Meanwhile other clients do what the case says, each in a process of its own:

- `nothing`: there are no others.
- `flood`: one publishes at QoS 0 as fast as it can, and nobody subscribes.
- `flood-read`: the same, and one subscribes and reads.
- `flood-unread`: the same, and one subscribes and stops reading.
- `flood-qos1`: one publishes at QoS 1 with a window of 1000 messages, and nobody subscribes.
- `retained`: one publishes retained messages to 200 000 topics, and one subscribes to all of them every second.

Every case has a broker of its own. All processes share the cores of this machine, and `nothing` shows what that costs.
A client that waits for a message sends no other, so a broker that stands still for long has few round trips: the
maximum and the number of trips show it, while the p99 may not.
"""

import argparse
import multiprocessing
import select
import socket
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from bench import packets
from bench.broker_speed import SECONDS_MAX
from bench.brokers import MOSQUITTO, OURS, Broker, BrokerError, only_present, running, stop_on_sigterm
from bench.clients import BUFFER, LoadError, connect, subscribe
from bench.loop import Loop
from bench.workloads import PAYLOAD, Workload

HONEST = 5
KEEP_ALIVE_S, PING_S = 2, 1.0
PAUSE_S = 0.005  # between two round trips
CONNECT_S = 1.0  # for all processes to start and connect before the load begins
FLOOD_TOPIC, TRIP_TOPIC = "flood/0", "trip/0"
FLOOD = packets.publish(FLOOD_TOPIC, PAYLOAD)
FLOOD_QOS1 = Workload(subscribers=0, qos=1)
CHUNK_MESSAGES = 1000
RETAINED_TOPICS = 200_000
SUBSCRIBE_S = 1.0

clock = time.monotonic  # the same in all processes


@dataclass(frozen=True)
class Period:
    begin: float
    end: float

    def wait(self) -> None:
        """Waits for the beginning."""
        time.sleep(max(0.0, self.begin - clock()))

    def left_s(self) -> float:
        return max(0.0, self.end - clock())


Role = Callable[[int, Period], int]  # loads the broker on a port; returns the number of messages that it published


def publish_stream(client: socket.socket, stream: bytes, period: Period, bytes_max: float = float("inf")) -> int:
    """Sends a stream again and again, as fast as the broker reads it; returns the number of bytes."""
    client.setblocking(False)
    view, sent = memoryview(stream), 0
    while sent < bytes_max and (left := period.left_s()):
        if select.select([], [client], [], left)[1]:
            sent += client.send(view[sent % len(stream) :])
    return sent


def flood(port: int, period: Period) -> int:
    with connect(port, "flood") as client:
        period.wait()
        return publish_stream(client, FLOOD * CHUNK_MESSAGES, period) // len(FLOOD)


def flood_qos1(port: int, period: Period) -> int:
    with ExitStack() as stack:
        loop = Loop(FLOOD_QOS1, port, port, stack)
        period.wait()
        with loop.stalls_named():
            loop.run(period.left_s())
        return loop.sent


def read(port: int, period: Period) -> int:
    with connect(port, "reader") as client:
        subscribe(client, [FLOOD_TOPIC])
        while left := period.left_s():
            if select.select([client], [], [], left)[0] and not client.recv_into(BUFFER):
                raise LoadError("the broker closed the reader's connection")
    return 0


def stop_reading(port: int, period: Period) -> int:
    with connect(port, "reader") as client:
        subscribe(client, [FLOOD_TOPIC])
        time.sleep(period.left_s())
    return 0


@cache
def retained_stream() -> bytes:
    topics = (f"retained/{i % 100:02d}/{i:06d}" for i in range(RETAINED_TOPICS))
    return b"".join(packets.publish(topic, PAYLOAD, is_retained=True) for topic in topics)


def retain(port: int, period: Period) -> int:
    stream = retained_stream()
    with connect(port, "retainer") as client:
        period.wait()
        sent = publish_stream(client, stream, period, bytes_max=len(stream))
        time.sleep(period.left_s())
    return sent * RETAINED_TOPICS // len(stream)


def subscribe_to_retained(port: int, period: Period) -> int:
    """Subscribes again and again, and each time receives all that is retained."""
    with connect(port, "collector") as client:
        period.wait()
        next_subscription = clock()
        while left := period.left_s():
            if clock() >= next_subscription:
                client.sendall(packets.subscribe(1, ["retained/#"], 0))
                next_subscription += SUBSCRIBE_S
            if select.select([client], [], [], min(left, SUBSCRIBE_S))[0] and not client.recv_into(BUFFER):
                raise LoadError("the broker closed the connection of the client that subscribes to retained messages")
    return 0


CASES: dict[str, tuple[Role, ...]] = {
    "nothing": (),
    "flood": (flood,),
    "flood-read": (read, flood),
    "flood-unread": (stop_reading, flood),
    "flood-qos1": (flood_qos1,),
    "retained": (subscribe_to_retained, retain),
}


class HonestClients:
    """Clients that ping in time; the first one also sends messages to itself."""

    def __init__(self, port: int) -> None:
        self.clients = [connect(port, f"honest{i}", keep_alive_s=KEEP_ALIVE_S) for i in range(HONEST)]
        self.traveller = self.clients[0]
        subscribe(self.traveller, [TRIP_TOPIC])
        self.message = packets.publish(TRIP_TOPIC, PAYLOAD)
        self.connected = {client.fileno(): client for client in self.clients}
        self.trips: list[tuple[float, float]] = []  # when the message was sent and how long it took, in seconds
        self.sent_at: float | None = None  # of the message under way
        self.inbox = b""  # of the traveller; there may be answers to pings

    def run(self, end: float) -> None:
        poll = select.epoll()
        for client in self.clients:
            poll.register(client, select.EPOLLIN)
        next_ping = next_trip = clock()
        while (now := clock()) < end and self.connected:
            if now >= next_ping:
                for client in list(self.connected.values()):
                    self._send(client, packets.PINGREQ)
                next_ping += PING_S
            if self.sent_at is None and now >= next_trip:
                self.sent_at = clock()
                self._send(self.traveller, self.message)
            wake = min(next_ping, end, next_trip if self.sent_at is None else end)
            for descriptor, _ in poll.poll(max(0.0, wake - clock())):
                if self._receive(self.connected[descriptor]):
                    next_trip = clock() + PAUSE_S
        if self.sent_at is not None:
            self._arrived(max(end, clock()))

    def _send(self, client: socket.socket, packet: bytes) -> None:
        try:
            client.sendall(packet)
        except OSError:
            self._cut(client)

    def _receive(self, client: socket.socket) -> bool:
        """Receives what is there; returns whether the message is back."""
        try:
            data = client.recv(len(BUFFER))
        except OSError:
            data = b""
        if not data:
            self._cut(client)
        if client is not self.traveller:
            return False
        self.inbox += data
        if self.message not in self.inbox:
            return False
        self.inbox = b""
        self._arrived(clock())
        return True

    def _arrived(self, now: float) -> None:
        assert self.sent_at is not None
        self.trips.append((self.sent_at, now - self.sent_at))
        self.sent_at = None

    def _cut(self, client: socket.socket) -> None:
        """Closing a client also takes it out of the poll."""
        if self.connected.pop(client.fileno(), None):
            client.close()


def honest(port: int, period: Period) -> tuple[list[float], int]:
    """The round trips that ended in the period, in milliseconds, and the number of clients that were cut."""
    clients = HonestClients(port)
    clients.run(period.end)
    cut = HONEST - len(clients.connected)
    for client in clients.clients:
        client.close()
    return [seconds * 1e3 for sent_at, seconds in clients.trips if sent_at + seconds >= period.begin], cut


def report(broker: Broker, case: str, seconds: float) -> None:
    roles = CASES[case]
    context = multiprocessing.get_context("fork")  # children inherit the packets that are ready
    with running(broker) as process, ProcessPoolExecutor(len(roles) + 1, mp_context=context) as pool:
        period = Period(clock() + CONNECT_S, clock() + CONNECT_S + seconds)
        honest_result = pool.submit(honest, process.port, period)
        others = [pool.submit(role, process.port, period) for role in roles]
        trips, cut = honest_result.result()
        published = sum(other.result() for other in others)
    trips.sort()
    quantiles = (trips[len(trips) // 2], trips[len(trips) * 99 // 100], trips[-1])
    cells = "".join(f"{value:>10.2f}" for value in quantiles)
    print(f"{case:14} {broker.name:10} {cells} {cut:>6} {len(trips):>8} {published / seconds:>14,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description="Honest clients beside others.")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a case lasts")
    brokers = {broker.name: broker for broker in (OURS, MOSQUITTO)}
    parser.add_argument("--only", action="append", default=[], choices=[*CASES, *brokers], help="may be repeated")
    options = parser.parse_args()
    if not 0 < options.seconds <= SECONDS_MAX:
        parser.error(f"up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    present = only_present([brokers[name] for name in brokers if name in options.only] or list(brokers.values()))
    retained_stream()
    print(f"round trips in ms, honest clients that were cut (of {HONEST}), messages published by the others")
    print(f"{'':14} {'':10} {'p50':>10}{'p99':>10}{'max':>10} {'cut':>6} {'trips':>8} {'others, 1/s':>14}", flush=True)
    for case in [name for name in CASES if name in options.only] or CASES:
        for broker in present:
            try:
                report(broker, case, options.seconds)
            except (BrokerError, LoadError, OSError) as error:
                print(f"{case:14} {broker.name:10} failed: {error or type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
