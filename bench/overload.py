"""A broker under loads that no client should cause: its peak memory and what an honest client notices.

`python -m bench.overload [--seconds 10] [--small] [--only NAME]...`, where NAME is a case or a broker. Every case has a
broker of its own, with default settings. Besides those who load it, an honest client publishes to a topic of its own at
QoS 0 and waits until the message has come back, as in bench.fairness. The output has the peak of the resident memory,
the honest client's round trips and whether it was cut, and whether a new client is served within a second afterwards,
for brokerbed and for Mosquitto.

- `publisher`: one publishes at QoS 0 and one at QoS 1 as fast as they can.
- `unread`: 100 subscribers stop reading; one publishes to them at QoS 0.
- `unacknowledged`: 100 subscribers read and acknowledge nothing; one publishes to them at QoS 1.
- `burst`: 10 000 clients connect at the same time.
- `half-open`: 10 000 connections send half a CONNECT.
- `retained`: a million retained messages.
- `subscriptions`: ten clients with 100 000 filters each.
- `deep`: a client has 1000 filters of 150 levels, half of them `+`, and another publishes to new topics of that depth.
- `huge`: packets of 16 MB, and connections that send all of one but the last byte.
"""

import argparse
import multiprocessing
import resource
import select
import socket
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from bench import packets
from bench.broker_speed import SECONDS_MAX
from bench.brokers import MOSQUITTO, OURS, Broker, BrokerError, only_present, running, stop_on_sigterm
from bench.clients import BUFFER, HOST, LoadError, connect, subscribe
from bench.fairness import CHUNK_MESSAGES, CONNECT_S, FLOOD, FLOOD_TOPIC, Period, clock, honest, publish_stream
from bench.measurement import peak_bytes
from bench.workloads import PAYLOAD

DESCRIPTORS = 24_000  # open files on either side
DEPTH = 150
SERVED_S = 1.0
MB = 1e6


@dataclass(frozen=True)
class Scale:
    subscribers: int
    connections: int
    topics: int
    filters: int
    deep_filters: int
    packet_bytes: int
    packets: int


FULL = Scale(100, 10_000, 1_000_000, 1_000_000, 1000, 16 * 2**20, 10)
SMALL = Scale(10, 300, 5000, 5000, 100, 2**20, 5)
Role = Callable[[Scale, int, Period], None]


@dataclass(frozen=True)
class Outcome:
    peak_bytes: int
    trips_ms: list[float]  # of the honest client, sorted
    cut: int  # how many honest clients the broker cut
    is_served: bool  # a new client afterwards


def exchange(client: socket.socket, stream: bytes, period: Period) -> None:
    """Sends a stream again and again, and receives whatever comes."""
    client.setblocking(False)
    view, sent = memoryview(stream), 0
    while left := period.left_s():
        readable, writable, _ = select.select([client], [client], [], left)
        if readable and not client.recv_into(BUFFER):
            raise LoadError("the broker closed a connection")
        if writable:
            sent += client.send(view[sent % len(stream) :])


def publish(scale: Scale, port: int, period: Period) -> None:
    del scale
    with connect(port, "flood") as client:
        period.wait()
        publish_stream(client, FLOOD * CHUNK_MESSAGES, period)


def publish_at_qos1(scale: Scale, port: int, period: Period) -> None:
    del scale
    stream = b"".join(packets.publish(FLOOD_TOPIC, PAYLOAD, 1, number) for number in range(1, CHUNK_MESSAGES + 1))
    with connect(port, "flood-qos1") as client:
        period.wait()
        exchange(client, stream, period)


def stop_reading(scale: Scale, port: int, period: Period) -> None:
    with ExitStack() as stack:
        for number in range(scale.subscribers):
            subscribe(stack.enter_context(connect(port, f"unread{number}")), [FLOOD_TOPIC])
        time.sleep(period.left_s())


def never_acknowledge(scale: Scale, port: int, period: Period) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(port, f"unacknowledged{i}")) for i in range(scale.subscribers)]
        for client in clients:
            subscribe(client, [FLOOD_TOPIC], 1)
        while left := period.left_s():
            for client in select.select(clients, [], [], left)[0]:
                if not client.recv_into(BUFFER):
                    clients.remove(client)


def burst(scale: Scale, port: int, period: Period) -> None:
    with ExitStack() as stack:
        period.wait()
        clients = [stack.enter_context(socket.create_connection((HOST, port))) for _ in range(scale.connections)]
        for number, client in enumerate(clients):
            with suppress(OSError):
                client.sendall(packets.connect(f"burst{number}"))
        time.sleep(period.left_s())


def half_open(scale: Scale, port: int, period: Period) -> None:
    half = packets.connect("x" * 2000)[:1000]
    with ExitStack() as stack:
        period.wait()
        for _ in range(scale.connections):
            client = stack.enter_context(socket.create_connection((HOST, port)))
            with suppress(OSError):
                client.sendall(half)
        time.sleep(period.left_s())


def retain(scale: Scale, port: int, period: Period) -> None:
    with connect(port, "retainer") as client:
        period.wait()
        for first in range(0, scale.topics, CHUNK_MESSAGES):
            numbers = range(first, min(first + CHUNK_MESSAGES, scale.topics))
            client.sendall(b"".join(packets.publish(f"retained/{i}", PAYLOAD, is_retained=True) for i in numbers))
        client.sendall(packets.PINGREQ)
        packets.read_packet(client)
        time.sleep(period.left_s())


def hold_filters(scale: Scale, port: int, period: Period) -> None:
    clients = 10
    with ExitStack() as stack:
        period.wait()
        for number in range(clients):
            client = stack.enter_context(connect(port, f"filters{number}"))
            subscribe(client, [f"site/{number}/sensor/{i}" for i in range(scale.filters // clients)])
        time.sleep(period.left_s())


def deep(scale: Scale, port: int, period: Period) -> None:
    with connect(port, "deep") as client, connect(port, "deep-publisher") as publisher:
        middle = "+/x/" * (DEPTH // 2 - 1)
        subscribe(client, [f"{middle}+/{number}" for number in range(scale.deep_filters)])
        period.wait()
        number = 0
        while period.left_s():
            publisher.sendall(packets.publish("y/x/" * (DEPTH // 2 - 1) + f"{number}/0", PAYLOAD))
            packets.read_packet(client)
            number += 1


def huge(scale: Scale, port: int, period: Period) -> None:
    packet = packets.publish("huge", bytes(scale.packet_bytes))
    with ExitStack() as stack:
        reader, publisher = (stack.enter_context(connect(port, name)) for name in ("reader", "publisher"))
        subscribe(reader, ["huge"])
        period.wait()
        for number in range(scale.packets):
            stack.enter_context(connect(port, f"partial{number}")).sendall(packet[:-1])
            publisher.sendall(packet)
            left = len(packet)
            while left:
                if not (received := reader.recv_into(BUFFER)):
                    raise LoadError("the broker closed the reader's connection")
                left -= received
        time.sleep(period.left_s())


CASES: dict[str, tuple[Role, ...]] = {
    "publisher": (publish, publish_at_qos1),
    "unread": (stop_reading, publish),
    "unacknowledged": (never_acknowledge, publish_at_qos1),
    "burst": (burst,),
    "half-open": (half_open,),
    "retained": (retain,),
    "subscriptions": (hold_filters,),
    "deep": (deep,),
    "huge": (huge,),
}


def outcome(broker: Broker, case: str, scale: Scale, seconds: float) -> Outcome:
    context = multiprocessing.get_context("fork")
    roles = CASES[case]
    with running(broker) as process, ProcessPoolExecutor(len(roles) + 1, mp_context=context) as pool:
        period = Period(clock() + CONNECT_S, clock() + CONNECT_S + seconds)
        others = [pool.submit(partial(role, scale), process.port, period) for role in roles]
        trips, cut = pool.submit(honest, process.port, period).result()
        for other in others:
            other.result()
        return Outcome(peak_bytes(process.pid), sorted(trips), cut, _is_served(process.port))


def _is_served(port: int) -> bool:
    begun = clock()
    with suppress(OSError, LoadError), connect(port, "afterwards") as client:
        subscribe(client, ["afterwards"])
        client.sendall(packets.publish("afterwards", PAYLOAD))
        return packets.read_packet(client).endswith(PAYLOAD) and clock() - begun < SERVED_S
    return False


def allow_descriptors() -> None:
    """Brokers inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard) if hard >= 0 else DESCRIPTORS, hard))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description="Brokers under too much load.")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a case lasts at least")
    parser.add_argument("--small", action="store_true", help="the sizes that the tests use")
    brokers = {broker.name: broker for broker in (OURS, MOSQUITTO)}
    parser.add_argument("--only", action="append", default=[], choices=[*CASES, *brokers], help="may be repeated")
    options = parser.parse_args()
    if not 0 < options.seconds <= SECONDS_MAX:
        parser.error(f"up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    allow_descriptors()
    present = only_present([brokers[name] for name in brokers if name in options.only] or list(brokers.values()))
    print(
        f"{'':14} {'':10} {'peak, MB':>9}{'p50, ms':>9}{'p99':>8}{'max':>8} {'cut':>4}  served afterwards", flush=True
    )
    for case in [name for name in CASES if name in options.only] or CASES:
        for broker in present:
            try:
                result = outcome(broker, case, SMALL if options.small else FULL, options.seconds)
            except (BrokerError, LoadError, OSError) as error:
                print(f"{case:14} {broker.name:10} failed: {error or type(error).__name__}", flush=True)
                continue
            print(f"{case:14} {broker.name:10} {_cells(result)}", flush=True)


def _cells(result: Outcome) -> str:
    trips = result.trips_ms or [float("nan")]
    p50, p99, longest = trips[len(trips) // 2], trips[len(trips) * 99 // 100], trips[-1]
    figures = f"{result.peak_bytes / MB:>9.0f}{p50:>9.2f}{p99:>8.1f}{longest:>8.1f}"
    return f"{figures} {result.cut:>4}  {'yes' if result.is_served else 'no'}"


if __name__ == "__main__":
    main()
