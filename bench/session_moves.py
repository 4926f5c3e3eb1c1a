"""Sessions that follow their clients from broker to broker: a crowd that moves at once, and a long queue that moves.

`python -m bench.session_moves [--only PART]... [--durability D] [--clients N] [--messages N]`. Three brokers stand in a
line: west and east are children of hub. Clients keep their sessions and speak MQTT 3.1.1; messages have QoS 1. PART is

- `clients`: 1000 clients with ten messages waiting for each come back at once, first where they were (west), then at
  the other end of the line (east), and there once more. The output has the seconds from the first CONNECT to the
  last CONNACK and to the last message.
- `queue`: a client comes to east while 100 000 messages wait for it at west, and others are published all the time.
  Meanwhile a publisher at west sends 500 messages a second (QoS 0) to a subscriber at east. The output has its p99
  while nothing moves, during the move, and while a queue of the same length is delivered to a client that comes back
  where it was.

Every message must arrive once and in order, or the run fails with an error. Memory is the resident set of each broker:
before, at its peak during the part, and a second after it. brokerbed has its message log on, and its durability is
`process` or `memory`. All processes share the cores of this machine.
"""

import argparse
import multiprocessing
import resource
import select
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench import packets
from bench.broker_memory import MB, memory_bytes
from bench.brokers import Broker, BrokerError, Running, configured, only_present, stop_on_sigterm
from bench.clients import HOST, STALL_S, LoadError, connect, subscribe
from bench.loop import Loop
from bench.measurement import peak_bytes
from bench.tree_speed import ROOT_AND_TWO_LEAVES, running_tree
from bench.workloads import Workload

CLIENTS, QUEUE = PARTS = ("clients", "queue")
DURABILITIES = ("process", "memory")
CONFIGURATION = "[limits]\nqueue_messages_max = 200000\n"  # the queue and what is published while it moves
CLIENTS_COUNT, CLIENTS_MAX, WAITING_EACH = 1000, 3000, 10
QUEUED, QUEUED_MAX, TRICKLE_PER_S = 100_000, 150_000, 100
PAIR_PER_S, CALM_S, PERIOD_S = 500, 10.0, 0.5
HELPER_S_MAX = 60  # until a process has started, or ended, on a busy machine
DESCRIPTORS = 4000  # open files of a broker or of this process, which has 1000 clients
SETTLE_S = 1.0
CHUNK = 1000  # messages that are published before their acknowledgements are awaited
DIGITS = 64  # of the number that is a message's payload
PHONE, NEWS = "phone", "news"

Role = Callable[[Connection], None]  # takes its end of a pipe

clock_ns = time.perf_counter_ns  # the same in all processes


# -- clients ----------------------------------------------------------------------------------------------------------


def message(topic: str, number: int, packet_id: int) -> bytes:
    return packets.publish(topic, b"%0*d" % (DIGITS, number), 1, packet_id)


def publish(client: socket.socket, topics: Sequence[str], numbers: range) -> None:
    """Publish these numbers, in order, to each of the topics, and wait until all are acknowledged."""
    sent = [(topic, number) for number in numbers for topic in topics]
    for start in range(0, len(sent), CHUNK):
        part = sent[start : start + CHUNK]
        client.sendall(b"".join(message(topic, number, 1 + i) for i, (topic, number) in enumerate(part)))
        missing = packets.PUBACK_BYTES * len(part)
        while missing:
            received = client.recv(missing)
            if not received:
                raise LoadError("the broker closed a publisher's connection")
            missing -= len(received)


class Phone:
    """A client that keeps its session, and the numbers that it receives."""

    def __init__(self, client_id: str, topic: str, numbers: list[int]) -> None:
        self.client_id = client_id
        self.numbers = numbers
        self.is_accepted = False
        self._inbox = b""
        sample = message(topic, 0, 1)
        self._size, self._id_at = len(sample), packets.packet_id_offset(sample)

    def open(self, port: int) -> socket.socket:
        self.is_accepted, self._inbox = False, b""
        self.socket = socket.create_connection((HOST, port), timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(packets.connect(self.client_id, is_clean=False))
        return self.socket

    def receive(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise LoadError(f"the broker closed the connection of {self.client_id}")
        data = self._inbox + data
        if not self.is_accepted and len(data) >= packets.CONNACK_BYTES:
            if data[0] >> 4 != packets.CONNACK or data[3]:
                raise LoadError(f"the broker refused {self.client_id}: {data[:4].hex(' ')}")
            if not data[2]:
                raise LoadError(f"{self.client_id} got a new session")
            self.is_accepted, data = True, data[packets.CONNACK_BYTES :]
        size = self._size
        end = len(data) - len(data) % size
        if end:
            self.numbers += [int(data[at + size - DIGITS : at + size]) for at in range(0, end, size)]
            self.socket.sendall(packets.acknowledgements(data[:end], size, self._id_at))
        self._inbox = data[end:]

    def close(self) -> None:
        self.socket.sendall(packets.DISCONNECT)
        self.socket.close()


def subscribe_and_leave(port: int, client_id: str, topic: str) -> None:
    with connect(port, client_id, is_clean=False) as client:
        subscribe(client, [topic], qos=1)
        client.sendall(packets.DISCONNECT)


@contextmanager
def line(broker: Broker) -> Iterator[list[Running]]:
    """Runs hub, west and east, over which a message has passed."""
    with running_tree(broker, ROOT_AND_TWO_LEAVES) as brokers:
        _, west, east = brokers
        with ExitStack() as stack:
            Loop(Workload(), east.port, west.port, stack)
        yield brokers


# -- memory -----------------------------------------------------------------------------------------------------------


@dataclass
class Memory:
    """The resident set of one broker, in bytes."""

    before: float
    peak: float = 0.0
    after: float = 0.0


@contextmanager
def memory_watched(brokers: Sequence[Running]) -> Iterator[list[Memory]]:
    """The kernel counts the peak of each process anew from here on."""
    watched = []
    for broker in brokers:
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
        watched.append(Memory(memory_bytes(broker.pid).rss))
    yield watched
    for broker, memory in zip(brokers, watched, strict=True):
        memory.peak = peak_bytes(broker.pid)
    time.sleep(SETTLE_S)
    for broker, memory in zip(brokers, watched, strict=True):
        memory.after = memory_bytes(broker.pid).rss


def memory_text(watched: Sequence[Memory]) -> str:
    sizes = [f"{it.before / MB:.0f} / {it.peak / MB:.0f} / {it.after / MB:.0f}" for it in watched]
    return ", ".join(f"{name} {size}" for name, size in zip(("hub", "west", "east"), sizes, strict=True))


# -- a crowd that moves -----------------------------------------------------------------------------------------------


@dataclass
class Return:
    """How long a crowd took to come back, from its first CONNECT."""

    accepted_s: float
    received_s: float
    memory: list[Memory]


class Crowd:
    """Clients that leave and come back at once. Each has a topic of its own."""

    def __init__(self, brokers: list[Running], count: int) -> None:
        self.brokers = brokers
        self.hub, self.west, self.east = (broker.port for broker in brokers)
        self.topics = [f"crowd/{index:05d}" for index in range(count)]
        self.phones = [Phone(f"crowd{index:05d}", topic, []) for index, topic in enumerate(self.topics)]
        self.published = 0  # to each of them
        for phone, topic in zip(self.phones, self.topics, strict=True):
            subscribe_and_leave(self.west, phone.client_id, topic)

    def come_back(self, port: int, messages: int) -> Return:
        """Publish to all while they are away; then all connect to the broker on this port."""
        with connect(self.hub, "publisher") as publisher:
            publish(publisher, self.topics, range(self.published, self.published + messages))
        self.published += messages
        with memory_watched(self.brokers) as memory, select.epoll() as poll:
            begin_ns = clock_ns()
            opened = {}
            for phone in self.phones:
                opened[descriptor := phone.open(port).fileno()] = phone
                poll.register(descriptor, select.EPOLLIN)
            accepted_s = self._await(poll, opened, begin_ns, lambda phone: phone.is_accepted)
            received_s = self._await(poll, opened, begin_ns, lambda phone: len(phone.numbers) >= self.published)
        for phone in self.phones:
            phone.close()
            if phone.numbers != list(range(self.published)):
                raise LoadError(f"{phone.client_id} did not get every message once and in order")
        return Return(accepted_s, received_s, memory)

    def _await(
        self, poll: select.epoll, opened: dict[int, Phone], begin_ns: int, is_done: Callable[[Phone], bool]
    ) -> float:
        left = {phone for phone in opened.values() if not is_done(phone)}
        while left:
            ready = poll.poll(STALL_S)
            if not ready:
                raise LoadError(f"{len(left)} clients still wait after {STALL_S} s of silence")
            for descriptor, _ in ready:
                opened[descriptor].receive()
                if is_done(opened[descriptor]):
                    left.discard(opened[descriptor])
        return (clock_ns() - begin_ns) / 1e9


def report_clients(brokers: list[Running], count: int) -> None:
    crowd = Crowd(brokers, count)
    print(f"{count} clients, {WAITING_EACH} messages each: seconds to the last CONNACK and the last message;", end=" ")
    print("memory in MB before / peak / after")
    ways = {"reconnect at west": crowd.west, "move to east": crowd.east, "reconnect at east": crowd.east}
    for title, port in ways.items():
        back = crowd.come_back(port, WAITING_EACH)
        print(f"  {title:18} {back.accepted_s:6.2f} {back.received_s:6.2f}  {memory_text(back.memory)}", flush=True)


# -- a long queue that moves ------------------------------------------------------------------------------------------


def pair(publish_port: int, port: int, pipe: Connection) -> None:
    """Publishes at a rate until something comes through the pipe; answers with all latencies and their times."""
    samples: list[int] = []
    with ExitStack() as stack:
        loop = Loop(Workload(rate_per_s=PAIR_PER_S), port, publish_port, stack)
        pipe.send(clock_ns())
        with loop.stalls_named():
            while not pipe.poll():
                samples += loop.run_at_rate(PERIOD_S)[1]
        pipe.send(list(zip(loop.groups[0].sent_at_ns, samples, strict=True)))


def trickle(port: int, first: int, pipe: Connection) -> None:
    """Publishes numbers, one at a time, until something comes through the pipe; answers with the next number."""
    begin_s, number = time.perf_counter(), first
    with connect(port, "trickle") as client:
        pipe.send(clock_ns())
        while not pipe.poll(max(0.0, begin_s + (number - first) / TRICKLE_PER_S - time.perf_counter())):
            publish(client, [NEWS], range(number, number + 1))
            number += 1
    pipe.send(number)


class Helper:
    """A function in a process of its own, which ends when it is asked for its result."""

    def __init__(self, role: Role, stack: ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=role, args=(other,), daemon=True)
        self._process.start()
        other.close()
        stack.callback(self._process.kill)
        self._receive()

    def _receive(self) -> Any:
        if not self._pipe.poll(HELPER_S_MAX):
            raise LoadError(f"a part of the load did not answer for {HELPER_S_MAX} s")
        try:
            return self._pipe.recv()
        except EOFError:
            raise LoadError("a part of the load has failed") from None

    def result(self) -> Any:
        self._pipe.send(None)
        result = self._receive()
        self._process.join()
        return result


@dataclass
class Delivery:
    """A queue that a client receives, while a publisher goes on."""

    accepted_s: float
    received_s: float  # until the last message that waited when the client connected
    memory: list[Memory]
    behind: int  # messages that were published meanwhile
    period: tuple[int, int]


class Queue:
    """A client for which many messages wait."""

    def __init__(self, brokers: list[Running]) -> None:
        self.brokers = brokers
        self.hub, self.west, self.east = (broker.port for broker in brokers)
        self.numbers: list[int] = []
        self.published = 0
        subscribe_and_leave(self.west, PHONE, NEWS)

    def fill(self, messages: int) -> None:
        with connect(self.hub, "publisher") as publisher:
            publish(publisher, [NEWS], range(self.published, self.published + messages))
        self.published += messages

    def come_back(self, port: int) -> Delivery:
        waiting, phone = self.published, Phone(PHONE, NEWS, self.numbers)
        with ExitStack() as stack, memory_watched(self.brokers) as memory:
            others = Helper(partial(trickle, self.hub, waiting), stack)
            begin_ns = clock_ns()
            phone.open(port)
            while not phone.is_accepted:
                phone.receive()
            accepted_ns = clock_ns()
            while len(self.numbers) < waiting:
                phone.receive()
            end_ns = clock_ns()
            self.published = others.result()
            while len(self.numbers) < self.published:
                phone.receive()
        phone.close()
        if self.numbers != list(range(self.published)):
            raise LoadError("the client did not get every message once and in order")
        seconds = (accepted_ns - begin_ns) / 1e9, (end_ns - begin_ns) / 1e9
        return Delivery(*seconds, memory, self.published - waiting, (begin_ns, end_ns))


def p99_ms(samples: list[tuple[int, int]], period: tuple[int, int]) -> float:
    """The median of the p99 of each second. A moment in which other programs keep the cores counts little."""
    by_second: dict[int, list[int]] = defaultdict(list)
    for sent_at, latency in samples:
        if period[0] <= sent_at <= period[1]:
            by_second[(sent_at - period[0]) // 1_000_000_000].append(latency)
    if not by_second:
        raise LoadError("it was over before the pair of clients had sent a message")
    return statistics.median(sorted(found)[len(found) * 99 // 100] for found in by_second.values()) / 1e6


def report_queue(brokers: list[Running], messages: int) -> None:
    queue = Queue(brokers)
    with ExitStack() as stack:
        queue.fill(messages)
        samples = Helper(partial(pair, queue.west, queue.east), stack)
        begin_ns = clock_ns()
        time.sleep(CALM_S)
        calm = begin_ns, clock_ns()
        moved = queue.come_back(queue.east)
        queue.fill(messages)
        stayed = queue.come_back(queue.east)
        found = samples.result()
    print(f"a queue of {messages:,}: seconds to the CONNACK and the last of them; memory in MB before / peak / after")
    for title, delivery in (("move to east", moved), ("reconnect at east", stayed)):
        seconds = f"{delivery.accepted_s:6.2f} {delivery.received_s:6.2f}"
        print(f"  {title:18} {seconds}  {memory_text(delivery.memory)}; {delivery.behind} messages behind it")
    base = p99_ms(found, calm)
    print(f"  p99 of others: {base:.2f} ms while nothing moves,", end=" ")
    for title, delivery in (("during the move", moved), ("while the queue is delivered without a move", stayed)):
        p99 = p99_ms(found, delivery.period)
        print(f"{p99:.2f} ms ({p99 / base:.1f}) {title}", end="\n" if delivery is stayed else ", ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.session_moves", description="Sessions that move.")
    parser.add_argument("--only", action="append", default=[], choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--durability", action="append", default=[], choices=DURABILITIES, help="only this one")
    parser.add_argument("--clients", type=int, default=CLIENTS_COUNT)
    parser.add_argument("--messages", type=int, default=QUEUED, help="the length of the queue that moves")
    options = parser.parse_args()
    if not (0 < options.clients <= CLIENTS_MAX and 0 < options.messages <= QUEUED_MAX):
        parser.error(f"up to {CLIENTS_MAX} clients, and a queue of up to {QUEUED_MAX} messages")
    stop_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_limited = hard != resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard) if is_limited else DESCRIPTORS, hard))
    clients, queue = partial(report_clients, count=options.clients), partial(report_queue, messages=options.messages)
    for broker in only_present([configured(it, CONFIGURATION) for it in options.durability or DURABILITIES]):
        for part in options.only or PARTS:
            print(f"durability {broker.name},", end=" ")
            try:
                with line(broker) as brokers:
                    clients(brokers) if part == CLIENTS else queue(brokers)
            except (BrokerError, LoadError, OSError) as error:
                print(f"failed: {error or type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
