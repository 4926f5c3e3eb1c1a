"""The load generator: a closed loop on raw sockets, in a process of its own.

`python -m bench.load WORKLOAD --port PORT` loads the broker on that port and prints one JSON object; `measure` does so
from another program. A closed loop keeps a window of messages under way: publishers send again when subscribers have
received messages (and, with QoS 1 and 2, when the broker has acknowledged them). In this way a broker is kept busy and
never flooded. Durable clients have persistent sessions; an offline one gets its messages after all have been published.
In a tree, publisher and subscriber have different brokers; the load begins when a message has crossed the tree.

Nothing is encoded or decoded during the measurement. Publishers send slices of a buffer of ready packets. Topic and
payload have constant lengths, so a subscriber counts messages by their bytes. The first message is read and compared in
full. A message that is lost, repeated or late by more than STALL_S ends the run with an error.
"""

import argparse
import gc
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import packets
from bench.clients import (
    AFTERWARDS_S,
    PAYLOAD,
    STALL_S,
    Handshakes,
    Inflow,
    LoadError,
    connect,
    drain,
    finish_handshake,
    first_message,
    subscribe,
)

WINDOW_MESSAGES = 1000
DRAIN_S_MAX = 60  # for messages under way at the end; 50 000 deliveries take the slowest broker a few seconds
NAP_S = 0.0005  # before each receipt; otherwise a broker that writes single messages spends half its time waking us up
WARM_UP_S = 0.2  # fills caches and opens TCP windows
SET_UP_S_MAX = 120  # for 100 000 subscriptions; everything else takes milliseconds
CYCLE_MESSAGES = 50_000  # ready packets where they differ: a multiple of every batch, below the 65 535 packet ids
BYSTANDERS = 10  # connections that share the subscriptions nobody publishes to
PROBE_S = 0.05  # time for a message to cross a tree; a link that was refused at first reconnects meanwhile
PROBES_MAX = 400
LAST_PROBE = b"last"
MESSAGES_MAX = 1 << 40  # in effect no limit
ROUND_TRIPS_MAX = 1_000_000  # bounds the list of samples
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Workload:
    """Who publishes to whom. A batch is the number of messages that one publisher sends at once."""

    publishers: int = 1
    subscribers: int = 1
    qos: int = 0
    level: int = packets.LEVEL_311
    window: int = WINDOW_MESSAGES
    batch: int = 100
    topics: int = 1
    nap_s: float = NAP_S
    is_durable: bool = False  # sessions are persistent
    offline: int = 0  # the maximum number of messages published before the subscriber connects

    def __post_init__(self) -> None:
        assert (
            self.qos == 0 or self.publishers == 1
        )  # with several publishers, each would need a window for its acknowledgements
        assert self.qos < 2 or self.level == packets.LEVEL_311  # in MQTT 5 handshakes have no constant length
        assert CYCLE_MESSAGES % self.batch == 0
        assert self.offline % self.batch == 0
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
    "durable-20": Workload(qos=1, window=20, batch=10, nap_s=0, is_durable=True),
    "durable-100": Workload(qos=1, window=100, batch=50, nap_s=0, is_durable=True),
    "durable-qos2": Workload(qos=2, window=20, batch=10, nap_s=0, is_durable=True),
    "durable-offline": Workload(qos=1, window=100, batch=50, nap_s=0, is_durable=True, offline=20_000),
}


@dataclass(frozen=True)
class Result:
    messages: int
    deliveries: int
    seconds: float
    load_cpu_s: float
    broker_cpu_s: float  # of all brokers, if there are several
    broker_waited_s: float  # it was ready to run, but other processes had the cores
    p50_us: float | None = None
    p99_us: float | None = None
    drain_s: float | None = None  # until a subscriber that was offline had received everything

    @property
    def deliveries_per_s(self) -> float:
        return self.deliveries / self.seconds

    @property
    def drained_per_s(self) -> float | None:
        return self.deliveries / self.drain_s if self.drain_s else None

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


class Loop:
    """Publishers, subscribers and the window between them, connected and tested with one message."""

    def __init__(self, workload: Workload, port: int, publish_port: int, stack: ExitStack) -> None:
        self.workload = workload
        self.stream = memoryview(_stream(workload))
        self.sent_size = len(self.stream) // _stream_messages(workload)
        qos, level, is_clean = workload.qos, workload.level, not workload.is_durable
        subscribers = [stack.enter_context(subscriber(workload, port, i)) for i in range(workload.subscribers)]
        publishers = range(workload.publishers)
        self.publishers = [stack.enter_context(connect(publish_port, f"pub{i}", level, is_clean)) for i in publishers]
        if publish_port != port:
            self._await_path(subscribers)
        self.counts: list[int] = []
        self.inflows = [self._test_delivery(client) for client in subscribers]
        if qos:
            kind = Handshakes if qos == 2 else Inflow
            self.inflows.append(kind(self.publishers[0], packets.PUBACK_BYTES, self.counts, None))
        self.poll = stack.enter_context(select.epoll())
        for inflow in self.inflows:
            self.poll.register(inflow.client, select.EPOLLIN)
        self.by_descriptor = {inflow.client.fileno(): inflow for inflow in self.inflows}
        self.sent = 0
        self.position = 0

    def _await_path(self, subscribers: Sequence[socket.socket]) -> None:
        """Repeats a message until one arrives, because links and interest take a moment. None is left under way."""
        (publisher,), (subscriber,), probe_topic = self.publishers, subscribers, topic(0)
        assert self.workload.qos == 0  # nobody waits for acknowledgements
        for _ in range(PROBES_MAX):
            publisher.sendall(packets.publish(probe_topic, b"probe", level=self.workload.level))
            if select.select([subscriber], [], [], PROBE_S)[0]:
                break
        else:
            raise LoadError(f"no message crossed the tree in {PROBES_MAX * PROBE_S:.0f} s")
        publisher.sendall(packets.publish(probe_topic, LAST_PROBE, level=self.workload.level))
        while not packets.read_packet(subscriber).endswith(LAST_PROBE):
            pass

    def _test_delivery(self, subscriber: socket.socket) -> Inflow:
        """Checks that the first message arrives as it was sent; all others have its length."""
        if not self.counts:
            self.publishers[0].sendall(self.stream[: self.sent_size])
            if self.workload.qos:
                finish_handshake(self.publishers[0], packets.PUBACK if self.workload.qos == 1 else packets.PUBREC)
        return first_message(subscriber, self.workload.qos, self.counts)

    def run(self, seconds: float, messages_max: int = MESSAGES_MAX) -> float:
        """Keeps the window full for that long and waits for the last message; returns the seconds it took."""
        window, batch, nap_s, clock = self.workload.window, self.workload.batch, self.workload.nap_s, time.perf_counter
        last = self.sent + messages_max
        start = clock()
        while clock() < start + seconds and self.sent < last:
            while self.sent - min(self.counts) + batch <= window and self.sent < last:
                self._send(batch)
            if nap_s:
                time.sleep(nap_s)
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
        """Sends one message at a time; returns the nanoseconds from before it is sent until it is received."""
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
        """Turns the kernel's time-out into an error message."""
        try:
            yield
        except BlockingIOError:
            raise LoadError(self._missing(f"and nothing arrived for {STALL_S} s")) from None


def subscriber(workload: Workload, port: int, number: int) -> socket.socket:
    client = connect(port, f"sub{number}", workload.level, is_clean=not workload.is_durable)
    subscribe(client, ["bench/+" if workload.topics > 1 else topic(0)], workload.qos, workload.level)
    return client


def generate(
    workload: Workload, port: int, publish_port: int, seconds: float, pids: Sequence[int], bystanders: int
) -> Result:
    """Connects, warms up, measures, disconnects."""
    with ExitStack() as stack:
        _subscribe_bystanders(port, bystanders, stack)
        if workload.offline:
            with subscriber(workload, port, 0) as client:
                client.sendall(packets.DISCONNECT)
        loop = Loop(replace(workload, subscribers=0) if workload.offline else workload, port, publish_port, stack)
        gc.disable()
        with loop.stalls_named():
            if not workload.offline:
                loop.run(WARM_UP_S)
            before, own_cpu, cpu, waited = loop.sent, time.process_time(), cpu_s(pids), waited_s(pids)
            samples: list[int] = []
            if workload.window == 1:
                samples = sorted(loop.round_trips(seconds))
                elapsed = sum(samples) / 1e9
            else:
                elapsed = loop.run(seconds, workload.offline or MESSAGES_MAX)
        messages = loop.sent - before
        result = Result(
            messages=messages,
            deliveries=messages * workload.subscribers,
            seconds=elapsed,
            load_cpu_s=time.process_time() - own_cpu,
            broker_cpu_s=cpu_s(pids) - cpu,
            broker_waited_s=waited_s(pids) - waited,
            p50_us=samples[len(samples) // 2] / 1e3 if samples else None,
            p99_us=samples[len(samples) * 99 // 100] / 1e3 if samples else None,
        )
        return replace(result, drain_s=drain(port, "sub0", messages)) if workload.offline else result


def cpu_s(pids: Sequence[int]) -> float:
    """Seconds of CPU that processes have used so far, in user and kernel mode."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(values[11]) + int(values[12]) for values in fields) / os.sysconf("SC_CLK_TCK")


def waited_s(pids: Sequence[int]) -> float:
    """Seconds that the main threads of processes were ready to run and had no core."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9


def _subscribe_bystanders(port: int, count: int, stack: ExitStack) -> None:
    """Subscriptions that no message matches; every second one has a wildcard."""
    for index in range(BYSTANDERS if count else 0):
        client = stack.enter_context(connect(port, f"bystander{index}"))
        subscribe(client, [f"other/{i}/{'+' if i // BYSTANDERS % 2 else 'a'}" for i in range(index, count, BYSTANDERS)])


def topic(index: int) -> str:
    return f"bench/{index:05d}"


def _stream_messages(workload: Workload) -> int:
    return CYCLE_MESSAGES if workload.qos or workload.topics > 1 else workload.batch


def _stream(workload: Workload) -> bytes:
    """Ready packets, which are sent cyclically; at QoS 1 and 2 each has an identifier of its own."""
    return b"".join(
        packets.publish(topic(i % workload.topics), PAYLOAD, workload.qos, i + 1, workload.level)
        for i in range(_stream_messages(workload))
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Load a broker and print the result.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--publish-port", type=int, help="port of the publishers' broker, if it is another one of a tree"
    )
    parser.add_argument(
        "--pid", type=int, action="append", help="process id of a broker, to read its CPU time; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--bystanders", type=int, default=0, help="subscriptions that match nothing")
    options = parser.parse_args()
    try:
        pids = options.pid or [os.getpid()]
        result = generate(
            WORKLOADS[options.workload],
            options.port,
            options.publish_port or options.port,
            options.seconds,
            pids,
            options.bystanders,
        )
    except (LoadError, OSError) as error:
        sys.exit(f"{options.workload}: {error or type(error).__name__}")
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
