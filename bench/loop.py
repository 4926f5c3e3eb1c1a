"""Groups of publishers and subscribers, and the loop that keeps messages of all groups under way.

Nothing is encoded or decoded during the measurement. Publishers send slices of a buffer of ready packets. Topic and
payload have constant lengths, so a subscriber counts messages by their bytes. The first message of every group is read
and compared in full. A message that is lost, repeated or late by more than STALL_S ends the run with an error.
"""

import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from bench import packets
from bench.clients import (
    AFTERWARDS_S,
    STALL_S,
    Handshakes,
    Inflow,
    LoadError,
    connect,
    finish_handshake,
    first_message,
    subscribe,
)
from bench.workloads import Workload, topic

DRAIN_S_MAX = 60  # for messages under way at the end; 50 000 deliveries take the slowest broker a few seconds
PROBE_S = 0.05  # time for a message to cross a tree; a link that was refused at first reconnects meanwhile
PROBES_MAX = 400
LAST_PROBE = b"last"
MESSAGES_MAX = 1 << 40  # in effect no limit
ROUND_TRIPS_MAX = 1_000_000  # bounds the list of samples


class Group:
    """Publishers, subscribers and the window between them, connected and tested with one message."""

    def __init__(self, workload: Workload, number: int, port: int, publish_port: int, stack: ExitStack) -> None:
        self.workload = workload
        self.stream = memoryview(workload.stream(number))
        self.size = len(self.stream) // workload.cycle_messages
        level, is_clean = workload.level, not workload.is_durable
        first = number * workload.publishers
        publishers = range(first, first + workload.publishers)
        first = number * workload.subscribers
        self.subscribers = [
            stack.enter_context(subscriber(workload, port, i, number))
            for i in range(first, first + workload.subscribers)
        ]
        self.publishers = [stack.enter_context(connect(publish_port, f"pub{i}", level, is_clean)) for i in publishers]
        if publish_port != port:
            self._await_path()
        self.delivered: list[int] = []  # messages of each subscriber
        self.acknowledged: list[int] = []  # messages of each publisher, unless the QoS is 0
        self.inflows = self._test_delivery()
        if workload.qos:
            kind = Handshakes if workload.qos == 2 else Inflow
            self.inflows += [kind(each, packets.PUBACK_BYTES, self.acknowledged, None) for each in self.publishers]
        self.sent = 0
        self.last = MESSAGES_MAX  # nothing is sent beyond this number
        self.position = 0  # in the stream
        self.turn = 0  # of the publishers
        self.sent_at_ns: list[int] = []  # of each message, if a rate is given
        self.timed = 0  # messages whose latency is known

    def _await_path(self) -> None:
        """Repeats a message until one arrives, because links and interest take a moment. None is left under way."""
        (publisher,), (subscriber,), probe_topic = self.publishers, self.subscribers, topic(0)
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

    def _test_delivery(self) -> list[Inflow]:
        """Checks that a message arrives as it was sent; all others have its length."""
        qos = self.workload.qos
        if not self.subscribers:
            return []
        self.publishers[0].sendall(self.stream[: self.size])
        if qos:
            finish_handshake(self.publishers[0], packets.PUBACK if qos == 1 else packets.PUBREC)
        if not self.workload.is_shared:
            return [first_message(client, qos, self.delivered) for client in self.subscribers]
        ready, _, _ = select.select(self.subscribers, [], [], STALL_S)
        if not ready:
            raise LoadError(f"no message arrived for {STALL_S} s")
        one = first_message(ready[0], qos, self.delivered)
        others = [client for client in self.subscribers if client is not one.client]
        return [one, *(type(one)(client, one.size, self.delivered, one.id_offset) for client in others)]

    def completed(self) -> int:
        """Messages that are no longer under way: received, and acknowledged if the QoS asks for it."""
        if not self.delivered:
            return sum(self.acknowledged)
        delivered = sum(self.delivered) if self.workload.is_shared else min(self.delivered)
        return min(delivered, sum(self.acknowledged)) if self.acknowledged else delivered

    def has_repeated(self) -> bool:
        delivered = [sum(self.delivered)] if self.workload.is_shared else self.delivered
        return max((*delivered, sum(self.acknowledged))) > self.sent

    def fill(self) -> int:
        """Publishes what the window has room for, in turn by all publishers; returns the number of messages."""
        batch = self.workload.batch
        room = self.completed() + self.workload.window - self.sent
        share = max(room // len(self.publishers), batch)
        before = self.sent
        while room >= batch and self.sent < self.last:
            room -= self.send(min(share, room, self.last - self.sent))
        return self.sent - before

    def send(self, messages: int) -> int:
        """Sends that many messages, or fewer at the end of the stream; returns how many."""
        end = min(self.position + messages * self.size, len(self.stream))
        messages = (end - self.position) // self.size
        self.publishers[self.turn].sendall(self.stream[self.position : end])
        self.position = end % len(self.stream)
        self.turn = (self.turn + 1) % len(self.publishers)
        self.sent += messages
        return messages


def subscriber(workload: Workload, port: int, number: int, group: int = 0) -> socket.socket:
    client = connect(port, f"sub{number}", workload.level, is_clean=not workload.is_durable)
    subscribe(client, workload.filters(group), workload.qos, workload.level)
    return client


class Loop:
    """Sends and receives for all groups."""

    def __init__(self, workload: Workload, port: int, publish_port: int, stack: ExitStack) -> None:
        self.workload = workload
        self.groups = [Group(workload, number, port, publish_port, stack) for number in range(workload.groups)]
        self.poll = stack.enter_context(select.epoll())
        self.sources = {inflow.client.fileno(): (inflow, group) for group in self.groups for inflow in group.inflows}
        for descriptor in self.sources:
            self.poll.register(descriptor, select.EPOLLIN)

    @property
    def sent(self) -> int:
        return sum(group.sent for group in self.groups)

    def run(self, seconds: float, messages_max: int = MESSAGES_MAX) -> float:
        """Keeps the windows full for that long and waits for the last message; returns the seconds it took.

        `messages_max` limits the messages of each group.
        """
        nap_s, clock = self.workload.nap_s, time.perf_counter
        start = clock()
        for group in self.groups:
            group.last = group.sent + messages_max
            group.fill()
        while clock() < start + seconds and any(group.sent < group.last for group in self.groups):
            sent = [group.fill() for group in self._receive()]
            if nap_s and not any(sent):
                time.sleep(nap_s)
        self._drain()
        return self._checked(clock() - start)

    def run_at_rate(self, seconds: float) -> tuple[float, list[int]]:
        """Publishes at the workload's rate, to one group after the other, whether or not messages arrive.

        Returns the seconds it took and the nanoseconds of each message from before it is sent until it is received.
        """
        clock = time.perf_counter
        samples: list[int] = []
        start = clock()
        messages = int(seconds * self.workload.rate_per_s)
        for number in range(messages):
            # select waits for microseconds, but epoll for whole milliseconds.
            while (wait_s := start + number / self.workload.rate_per_s - clock()) > 0:
                if select.select([self.poll], [], [], wait_s)[0]:
                    self._receive_timed(samples)
            group = self.groups[number % len(self.groups)]
            group.sent_at_ns.append(time.perf_counter_ns())
            group.send(1)
        elapsed = clock() - start
        while len(samples) < messages:
            self._receive_timed(samples)
        self._drain()
        return self._checked(elapsed), samples

    def _receive_timed(self, samples: list[int]) -> None:
        touched = self._receive()
        now = time.perf_counter_ns()
        for group in touched:
            received = group.delivered[0]
            samples += [now - sent_at for sent_at in group.sent_at_ns[group.timed : received]]
            group.timed = received

    def round_trips(self, seconds: float) -> list[int]:
        """Sends one message at a time; returns the nanoseconds from before it is sent until it is received."""
        clock = time.perf_counter_ns
        (group,) = self.groups
        send, message = group.publishers[0].sendall, bytes(group.stream[: group.size])
        inflow = group.inflows[0]
        samples: list[int] = []
        end = clock() + int(seconds * 1e9)
        sent_at = clock()
        while sent_at < end and len(samples) < ROUND_TRIPS_MAX:
            send(message)
            group.sent += 1
            while group.delivered[0] < group.sent:
                inflow.receive()
            now = clock()
            samples.append(now - sent_at)
            sent_at = now
        return samples

    def _receive(self) -> Iterable[Group]:
        """Receives what has arrived, or waits for it; returns the groups that received something."""
        ready = self.poll.poll(STALL_S)
        if not ready:
            raise BlockingIOError
        touched: dict[Group, None] = {}
        for descriptor, _ in ready:
            inflow, group = self.sources[descriptor]
            inflow.receive()
            touched[group] = None
        return touched

    def _drain(self) -> None:
        end = time.perf_counter() + DRAIN_S_MAX
        while any(group.completed() < group.sent for group in self.groups):
            if time.perf_counter() > end:
                raise LoadError(self._missing(f"after {DRAIN_S_MAX} s of waiting"))
            self._receive()

    def _checked(self, elapsed: float) -> float:
        if self.poll.poll(AFTERWARDS_S) or any(group.has_repeated() for group in self.groups):
            raise LoadError("the broker sent more than was published")
        return elapsed

    def _missing(self, when: str) -> str:
        return (
            f"{self.sent - sum(group.completed() for group in self.groups)} of {self.sent} messages are missing {when}"
        )

    @contextmanager
    def stalls_named(self) -> Iterator[None]:
        """Turns the kernel's time-out into an error message."""
        try:
            yield
        except BlockingIOError:
            raise LoadError(self._missing(f"and nothing arrived for {STALL_S} s")) from None
