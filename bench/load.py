"""The load generator: a closed loop on raw sockets, in a process of its own.

`python -m bench.load WORKLOAD --port PORT` loads the broker on that port and prints one JSON object; `measure` does so
from another program. A closed loop keeps a window of messages under way: what the subscribers have received (and, with
QoS 1, what the broker has acknowledged) lets the publishers send again. So a broker is kept busy and never flooded.
In a tree the publisher has another broker than the subscriber; it begins when messages find their way.

Nothing is encoded or decoded while it measures. Publishers send slices of a buffer of ready packets. Topic and payload
have constant lengths, so a subscriber counts messages by their bytes. The first message is read and compared in full.
What is lost, repeated or late by more than STALL_S ends the run with a sentence.
"""

import argparse
import gc
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import packets

HOST = "127.0.0.1"
PAYLOAD = bytes(range(64))
WINDOW_MESSAGES = 1000
STALL_S = 10  # nothing for so long is a loss: the slowest broker here delivers thousands a second
DRAIN_S_MAX = 60  # for what is under way when the time is up: 50 000 deliveries take the slowest broker a few seconds
NAP_S = 0.0005  # before each receipt, or a broker that writes message by message spends half its time waking us up
WARM_UP_S = 0.2  # fills caches and opens TCP windows
AFTERWARDS_S = 0.05  # to see whether more arrives than was published
SET_UP_S_MAX = 120  # for 100 000 subscriptions; all else takes milliseconds
BUFFER_BYTES = 1 << 20  # more than a window of messages
CYCLE_MESSAGES = 50_000  # ready packets where they differ: a multiple of every batch, below the 65 535 packet ids
FILTERS_PER_PACKET = 100  # in one SUBSCRIBE: well below every broker's packet limit
BYSTANDERS = 10  # connections that share the subscriptions nobody publishes to
PROBE_S = 0.05  # a tree may need so long to take a message across; a link that was too early is dialled again
PROBES_MAX = 400
LAST_PROBE = b"last"
ROUND_TRIPS_MAX = 1_000_000  # bounds the list of samples
ROOT = Path(__file__).parents[1]


class LoadError(Exception):
    """The broker lost, repeated or held back messages, or refused a client."""


@dataclass(frozen=True)
class Workload:
    """Who publishes to whom. A batch is what one publisher sends at once."""

    publishers: int = 1
    subscribers: int = 1
    qos: int = 0
    level: int = packets.LEVEL_311
    window: int = WINDOW_MESSAGES
    batch: int = 100
    topics: int = 1

    def __post_init__(self) -> None:
        assert self.qos == 0 or self.publishers == 1  # acknowledgements of several would need a window each
        assert CYCLE_MESSAGES % self.batch == 0
        assert CYCLE_MESSAGES <= packets.PACKET_ID_MAX
        assert 1 <= self.topics <= CYCLE_MESSAGES


WORKLOADS = {
    "one-to-one": Workload(),
    "fan-out-50": Workload(subscribers=50),
    "fan-in-20": Workload(publishers=20, batch=25),
    "qos1": Workload(qos=1, batch=100),
    "round-trip": Workload(window=1, batch=1),
    "one-to-one-v5": Workload(level=packets.LEVEL_5),
    "round-trip-v5": Workload(window=1, batch=1, level=packets.LEVEL_5),
    "mixed": Workload(topics=100),
    "mixed-v5": Workload(topics=100, level=packets.LEVEL_5),
    "many-topics": Workload(topics=CYCLE_MESSAGES),
}


@dataclass(frozen=True)
class Result:
    messages: int
    deliveries: int
    seconds: float
    load_cpu_s: float
    broker_cpu_s: float  # of all brokers, if there are several
    broker_waited_s: float  # it wanted a core and others had them
    p50_us: float | None = None
    p99_us: float | None = None

    @property
    def deliveries_per_s(self) -> float:
        return self.deliveries / self.seconds

    @property
    def cpu_us_per_delivery(self) -> float:
        return self.broker_cpu_s * 1e6 / self.deliveries

    @property
    def broker_busy(self) -> float:
        return self.broker_cpu_s / self.seconds

    @property
    def broker_waited(self) -> float:
        return self.broker_waited_s / self.seconds


def measure(
    name: str, port: int, seconds: float, pids: Sequence[int], bystanders: int = 0, publish_port: int | None = None
) -> Result:
    """Runs a workload in a process of its own against the broker on `port`; `pids` are all brokers at work."""
    command = [sys.executable, "-m", "bench.load", name, "--port", str(port), "--seconds", str(seconds)]
    command += ["--publish-port", str(publish_port or port), "--bystanders", str(bystanders)]
    command += [word for pid in pids for word in ("--pid", str(pid))]
    limit_s = SET_UP_S_MAX + WARM_UP_S + seconds + 2 * DRAIN_S_MAX
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"no end after {limit_s:.0f} s") from None
    if done.returncode:
        raise LoadError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return Result(**json.loads(done.stdout))


def connect(port: int, client_id: str, level: int = packets.LEVEL_311) -> socket.socket:
    """A connected client. Its time-outs are the kernel's: Python's own would cost a poll for every call."""
    client = socket.create_connection((HOST, port), timeout=STALL_S)
    client.settimeout(None)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        client.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", STALL_S, 0))
    client.sendall(packets.connect(client_id, level))
    answer = packets.read_packet(client)
    if answer[0] >> 4 != packets.CONNACK or answer[3]:
        raise LoadError(f"the broker refused a connection: {answer.hex(' ')}")
    return client


def subscribe(client: socket.socket, filters: Sequence[str], qos: int = 0, level: int = packets.LEVEL_311) -> None:
    for first in range(0, len(filters), FILTERS_PER_PACKET):
        some = filters[first : first + FILTERS_PER_PACKET]
        client.sendall(packets.subscribe(1, some, qos, level))
        answer = packets.read_packet(client)
        if answer[0] >> 4 != packets.SUBACK or max(answer[-len(some) :]) >= packets.REFUSED:
            raise LoadError(f"the broker refused a subscription to {some[0]}: {answer[:20].hex(' ')}")


class Inflow:
    """What one connection receives, counted in messages into its place of a list that all share."""

    def __init__(self, client: socket.socket, size: int, counts: list[int], id_offset: int | None) -> None:
        self.client = client
        self.size = size
        self.counts = counts
        self.place = len(counts)
        counts.append(0)
        self.bytes = 0
        self.id_offset = id_offset  # of PUBLISH packets that want an acknowledgement
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.kept = 0  # bytes of an incomplete PUBLISH, at the beginning of the buffer

    def receive(self) -> None:
        received = self.client.recv_into(self.view[self.kept :] if self.kept else self.buffer)
        if not received:
            raise LoadError("the broker closed a connection")
        self.bytes += received
        self.counts[self.place] = self.bytes // self.size
        if self.id_offset is not None:
            self._acknowledge(self.kept + received, self.id_offset)

    def _acknowledge(self, filled: int, id_offset: int) -> None:
        complete = filled - filled % self.size
        if complete:
            self.client.sendall(packets.acknowledgements(self.buffer[:complete], self.size, id_offset))
            self.buffer[: filled - complete] = self.buffer[complete:filled]
        self.kept = filled - complete


class Loop:
    """Publishers, subscribers and the window between them, connected and proven by one message."""

    def __init__(self, workload: Workload, port: int, publish_port: int, stack: ExitStack) -> None:
        self.workload = workload
        self.stream = memoryview(_stream(workload))
        self.sent_size = len(self.stream) // _stream_messages(workload)
        qos, level = workload.qos, workload.level
        subscribers = [stack.enter_context(connect(port, f"sub{i}", level)) for i in range(workload.subscribers)]
        for client in subscribers:
            subscribe(client, [f"bench/{'+' if workload.topics > 1 else _topic(0)}"], qos, level)
        publishers = range(workload.publishers)
        self.publishers = [stack.enter_context(connect(publish_port, f"pub{i}", level)) for i in publishers]
        if publish_port != port:
            self._find_way(subscribers)
        self.counts: list[int] = []
        self.inflows = [self._prove(client) for client in subscribers]
        if qos:
            self.inflows.append(Inflow(self.publishers[0], packets.PUBACK_BYTES, self.counts, None))
        self.poll = stack.enter_context(select.epoll())
        for inflow in self.inflows:
            self.poll.register(inflow.client, select.EPOLLIN)
        self.by_descriptor = {inflow.client.fileno(): inflow for inflow in self.inflows}
        self.sent = 0
        self.position = 0

    def _find_way(self, subscribers: Sequence[socket.socket]) -> None:
        """Repeats a message until one arrives: links and interest need a moment. None is left under way."""
        (publisher,), (subscriber,), topic = self.publishers, subscribers, f"bench/{_topic(0)}"
        assert self.workload.qos == 0  # nobody waits for acknowledgements
        for _ in range(PROBES_MAX):
            publisher.sendall(packets.publish(topic, b"probe", level=self.workload.level))
            if select.select([subscriber], [], [], PROBE_S)[0]:
                break
        else:
            raise LoadError(f"no message found its way in {PROBES_MAX * PROBE_S:.0f} s")
        publisher.sendall(packets.publish(topic, LAST_PROBE, level=self.workload.level))
        while not packets.read_packet(subscriber).endswith(LAST_PROBE):
            pass

    def _prove(self, subscriber: socket.socket) -> Inflow:
        """The first message arrives as it was sent; its length is that of all others."""
        if not self.counts:
            self.publishers[0].sendall(self.stream[: self.sent_size])
            if self.workload.qos:
                answer = packets.read_packet(self.publishers[0])
                if answer[0] >> 4 != packets.PUBACK or len(answer) != packets.PUBACK_BYTES:
                    raise LoadError(f"not the expected PUBACK: {answer.hex(' ')}")
        packet = packets.read_packet(subscriber)
        if packet[0] != 0x30 | self.workload.qos << 1 or not packet.endswith(PAYLOAD):
            raise LoadError(f"not the message that was published: {packet.hex(' ')}")
        if not self.workload.qos:
            return Inflow(subscriber, len(packet), self.counts, None)
        offset = packets.packet_id_offset(packet)
        subscriber.sendall(packets.acknowledgements(packet, len(packet), offset))
        return Inflow(subscriber, len(packet), self.counts, offset)

    def run(self, seconds: float) -> float:
        """Keeps the window full for that long and waits for the last message; returns the seconds it took."""
        window, batch, clock = self.workload.window, self.workload.batch, time.perf_counter
        start = clock()
        while clock() < start + seconds:
            while self.sent - min(self.counts) + batch <= window:
                self._send(batch)
            time.sleep(NAP_S)
            self._receive()
        while min(self.counts) < self.sent:
            if clock() > start + seconds + DRAIN_S_MAX:
                raise LoadError(self._missing(f"after {DRAIN_S_MAX} s of waiting"))
            self._receive()
        elapsed = clock() - start
        if max(self.counts) > self.sent or self.poll.poll(AFTERWARDS_S):
            raise LoadError("the broker sent more than was published")
        return elapsed

    def round_trips(self, seconds: float) -> list[int]:
        """One message at a time; nanoseconds from before it is sent until it is received."""
        clock = time.perf_counter_ns
        send, message = self.publishers[0].sendall, bytes(self.stream[: self.sent_size])
        inflow = self.inflows[0]
        samples: list[int] = []
        end = clock() + int(seconds * 1e9)
        sent_at = clock()
        while sent_at < end and len(samples) < ROUND_TRIPS_MAX:
            send(message)
            self.sent += 1
            while self.counts[0] < self.sent:
                inflow.receive()
            now = clock()
            samples.append(now - sent_at)
            sent_at = now
        return samples

    def _send(self, batch: int) -> None:
        publisher = self.publishers[self.sent // batch % len(self.publishers)]
        end = self.position + batch * self.sent_size
        publisher.sendall(self.stream[self.position : end])
        self.position = end % len(self.stream)
        self.sent += batch

    def _receive(self) -> None:
        if len(self.inflows) == 1:
            self.inflows[0].receive()
            return
        ready = self.poll.poll(STALL_S)
        if not ready:
            raise BlockingIOError
        for descriptor, _ in ready:
            self.by_descriptor[descriptor].receive()

    def _missing(self, when: str) -> str:
        return f"{self.sent - min(self.counts)} of {self.sent} messages are missing {when}"

    @contextmanager
    def stalls_named(self) -> Iterator[None]:
        """The kernel's time-out, in a sentence."""
        try:
            yield
        except BlockingIOError:
            raise LoadError(self._missing(f"and nothing came for {STALL_S} s")) from None


def generate(
    workload: Workload, port: int, publish_port: int, seconds: float, pids: Sequence[int], bystanders: int
) -> Result:
    """Connects, warms up, measures, disconnects."""
    with ExitStack() as stack:
        _subscribe_bystanders(port, bystanders, stack)
        loop = Loop(workload, port, publish_port, stack)
        gc.disable()
        with loop.stalls_named():
            loop.run(WARM_UP_S)
            before, own_cpu, cpu, waited = loop.sent, time.process_time(), cpu_s(pids), waited_s(pids)
            samples: list[int] = []
            if workload.window == 1:
                samples = sorted(loop.round_trips(seconds))
                elapsed = sum(samples) / 1e9
            else:
                elapsed = loop.run(seconds)
        messages = loop.sent - before
        return Result(
            messages=messages,
            deliveries=messages * workload.subscribers,
            seconds=elapsed,
            load_cpu_s=time.process_time() - own_cpu,
            broker_cpu_s=cpu_s(pids) - cpu,
            broker_waited_s=waited_s(pids) - waited,
            p50_us=samples[len(samples) // 2] / 1e3 if samples else None,
            p99_us=samples[len(samples) * 99 // 100] / 1e3 if samples else None,
        )


def cpu_s(pids: Sequence[int]) -> float:
    """Seconds of CPU that processes have used so far, in user and kernel mode."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def waited_s(pids: Sequence[int]) -> float:
    """Seconds that the main threads of processes were ready to run and had no core."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9


def _subscribe_bystanders(port: int, count: int, stack: ExitStack) -> None:
    """Subscriptions that no message matches; every second one has a wildcard."""
    for index in range(BYSTANDERS if count else 0):
        client = stack.enter_context(connect(port, f"bystander{index}"))
        subscribe(client, [f"other/{i}/{'+' if i // BYSTANDERS % 2 else 'a'}" for i in range(index, count, BYSTANDERS)])


def _topic(index: int) -> str:
    return f"{index:05d}"


def _stream_messages(workload: Workload) -> int:
    return CYCLE_MESSAGES if workload.qos or workload.topics > 1 else workload.batch


def _stream(workload: Workload) -> bytes:
    """Ready packets, to be sent round and round; with QoS 1 each has an identifier of its own."""
    return b"".join(
        packets.publish(f"bench/{_topic(i % workload.topics)}", PAYLOAD, workload.qos, i + 1, workload.level)
        for i in range(_stream_messages(workload))
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Load a broker and print what it did.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--publish-port", type=int, help="of the publishers' broker, if it is another one of a tree")
    parser.add_argument("--pid", type=int, action="append", help="of a broker, to read its CPU time; may be repeated")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--bystanders", type=int, default=0, help="subscriptions that match nothing")
    it = parser.parse_args()
    try:
        pids = it.pid or [os.getpid()]
        result = generate(WORKLOADS[it.workload], it.port, it.publish_port or it.port, it.seconds, pids, it.bystanders)
    except (LoadError, OSError) as error:
        sys.exit(f"{it.workload}: {error or type(error).__name__}")
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
