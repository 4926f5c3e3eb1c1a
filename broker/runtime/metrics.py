"""Metrics for Prometheus, read from the core's state when they are scraped."""

import asyncio
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from brokerbed.broker.core.broker import Broker
from brokerbed.broker.values import NS_PER_S

REQUEST_BYTES_MAX = 8192  # size of an HTTP request's head
REQUEST_S_MAX = 5.0
LAG_PERIOD_S = 0.1
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\n"


class LoopLag:
    """Measures how late the event loop is: a periodic timer adds up how much later than due it was called."""

    def __init__(self) -> None:
        self.seconds = 0.0  # sum over all samples
        self.samples = 0
        self._due_s = 0.0

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = time.monotonic() + LAG_PERIOD_S
        loop.call_later(LAG_PERIOD_S, self._sample, loop)

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seconds += max(0.0, time.monotonic() - self._due_s)  # it may be early: the loop counts in milliseconds
        self.samples += 1
        self.watch(loop)


class _ClientTotals:
    """Totals over the sessions of clients that are connected (ON), or of those that are not (OFF)."""

    def __init__(self) -> None:
        self.sessions = self.messages = self.bytes = self.inflight = self.entries = 0


class _Snapshot:
    """Totals over all sessions, collected in one pass: there may be many, and clients wait meanwhile."""

    def __init__(self, broker: Broker) -> None:
        self.connected, self.offline = _ClientTotals(), _ClientTotals()
        self.links = broker.overlay.links()
        self._limits = max(1, broker.config.queue_messages_max), max(1, broker.config.queue_bytes_max)
        fullest_messages = fullest_bytes = 0
        for session in broker.sessions.values():
            clients = self.offline if session.connection is None else self.connected
            clients.sessions += 1
            clients.entries += len(session.subscriptions)
            clients.inflight += len(session.inflight)
            if session.queue or session.queue_bytes:  # messages that are held have a size, too
                messages = len(session.queue) + (0 if session.move is None else len(session.move.held))
                clients.messages += messages
                clients.bytes += session.queue_bytes
                fullest_messages = max(fullest_messages, messages)
                fullest_bytes = max(fullest_bytes, session.queue_bytes)
        self._queue_sizes = [
            (fullest_messages, fullest_bytes),
            *((len(link.queue), link.queue_bytes) for link in self.links),
        ]

    @property
    def messages(self) -> int:
        return self.connected.messages + self.offline.messages + sum(len(session.queue) for session in self.links)

    @property
    def bytes(self) -> int:
        return self.connected.bytes + self.offline.bytes + sum(session.queue_bytes for session in self.links)

    @property
    def fill(self) -> float:
        """How full the fullest queue is, in messages or in bytes, whichever is nearer to its limit."""
        messages_max, bytes_max = self._limits
        return max(max(messages / messages_max, size / bytes_max) for messages, size in self._queue_sizes)

    @property
    def open_messages(self) -> int:
        """Messages that wait, are in the emulated service of a link, or are sent and not acknowledged."""
        on_links = sum(len(end.link.staged) + len(end.inflight) for end in self.links if end.link is not None)
        return self.messages + self.connected.inflight + self.offline.inflight + on_links


class BrokerCollector(Collector):
    def __init__(
        self, broker: Broker, lag: LoopLag | None = None, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`now_ns`: the clock of the broker's driver."""
        self._broker = broker
        self._lag = lag or LoopLag()
        self._now_ns = now_ns

    def collect(self) -> Iterator[Metric]:
        broker, counters = self._broker, self._broker.counters
        name, snapshot = broker.config.name, _Snapshot(broker)
        for metric, text, value in (
            ("brokerbed_messages_received", "PUBLISH packets received from clients", counters.messages_received),
            ("brokerbed_messages_delivered", "PUBLISH packets sent to clients", counters.messages_delivered),
            ("brokerbed_bytes_received", "bytes received from clients", counters.bytes_received),
            ("brokerbed_connections_opened", "connections accepted so far", counters.connections_total),
            ("brokerbed_protocol_errors", "connections ended for breaking the protocol", counters.protocol_errors),
            ("brokerbed_messages_rejected", "messages refused with a reason code", counters.rejected),
            ("brokerbed_placement_moves", "times that this broker got another parent", counters.moves),
            ("brokerbed_store_problems", "times that the store could not be written", counters.store_problems),
            ("brokerbed_loop_lag_seconds", "how late the event loop was, summed over samples", self._lag.seconds),
            ("brokerbed_loop_lag_samples", "how often that was looked at", self._lag.samples),
        ):
            counter = CounterMetricFamily(metric, text, labels=["broker"])
            counter.add_metric([name], value)
            yield counter
        dropped = CounterMetricFamily("brokerbed_messages_dropped", "deliveries dropped", labels=["broker", "reason"])
        for reason, value in counters.dropped.items():
            if reason:
                dropped.add_metric([name, reason.name.lower()], value)
        yield dropped
        shed = CounterMetricFamily("brokerbed_shed", "how often a limit was applied", labels=["broker", "reason"])
        for reason_of_limit, value in counters.shed.items():
            shed.add_metric([name, reason_of_limit], value)
        yield shed
        expired = CounterMetricFamily(
            "brokerbed_messages_expired", "of these, at their time", labels=["broker", "place"]
        )
        for place, value in counters.expired.items():
            expired.add_metric([name, place], value)
        yield expired
        for metric, text, gauge in (
            ("brokerbed_connections", "open connections", len(broker.connections)),
            ("brokerbed_sessions", "sessions, connected or not", len(broker.sessions) + len(broker.links)),
            ("brokerbed_timers", "timers that are set", len(broker.timers)),
            ("brokerbed_store_blocked", "1 while the store cannot be written", counters.store_blocked),
            ("brokerbed_retained_messages", "retained messages", len(broker.retained)),
            ("brokerbed_retained_bytes", "their size", broker.retained_bytes),
            ("brokerbed_connecting", "connections that have not sent a complete CONNECT", len(broker.connecting)),
            ("brokerbed_session_queue_messages", "messages that wait for their session", snapshot.messages),
            ("brokerbed_session_queue_bytes", "their size", snapshot.bytes),
            ("brokerbed_session_queue_fill_ratio", "how full the fullest queue is, of its limit", snapshot.fill),
            ("brokerbed_messages_under_way", "messages that the broker is not done with", self._under_way(snapshot)),
            (
                "brokerbed_offline_messages",
                "of these, those for clients that are not connected",
                snapshot.offline.messages + snapshot.offline.inflight,
            ),
        ):
            family = GaugeMetricFamily(metric, text, labels=["broker"])
            family.add_metric([name], gauge)
            yield family
        yield from self._client_metrics(name, snapshot)
        yield from self._link_metrics(name, snapshot)
        yield from self._link_state_metrics(name, snapshot)

    def _client_metrics(self, name: str, snapshot: _Snapshot) -> Iterator[Metric]:
        on, off = snapshot.connected, snapshot.offline
        for metric, text, connected, offline in (
            ("brokerbed_client_sessions", "sessions of clients", on.sessions, off.sessions),
            ("brokerbed_client_queue_messages", "messages that wait for clients", on.messages, off.messages),
            ("brokerbed_client_queue_bytes", "their size", on.bytes, off.bytes),
        ):
            family = GaugeMetricFamily(metric, text, labels=["broker", "state"])
            family.add_metric([name, "connected"], connected)
            family.add_metric([name, "offline"], offline)
            yield family

    def _link_metrics(self, name: str, snapshot: _Snapshot) -> Iterator[Metric]:
        links = [session.link for session in snapshot.links if session.link is not None]
        entries = GaugeMetricFamily("brokerbed_routing_entries", "routing table entries", labels=["broker", "scope"])
        entries.add_metric([name, "local"], snapshot.connected.entries + snapshot.offline.entries)
        entries.add_metric([name, "remote"], sum(len(link.entries) for link in links))
        advertised = sum(entry.is_advertisement for link in links for entry in link.advertised)
        entries.add_metric([name, "advertisement"], advertised)
        yield entries
        sent = CounterMetricFamily(
            "brokerbed_link_messages", "sent over overlay links", labels=["broker", "peer", "kind"]
        )
        for link in links:
            for kind, value in link.sent.items():
                sent.add_metric([name, link.peer, kind], value)
            if link.is_foreign:  # a foreign peer does not count what it sends us
                for kind, value in link.received.items():
                    sent.add_metric([link.peer, name, kind], value)
        yield sent

    def _link_state_metrics(self, name: str, snapshot: _Snapshot) -> Iterator[Metric]:
        now_ns, labels = self._now_ns(), ["broker", "peer"]
        connected = GaugeMetricFamily("brokerbed_link_connected", "1 while an overlay link is connected", labels=labels)
        silent = GaugeMetricFamily("brokerbed_link_silent_seconds", "since the peer was last heard", labels=labels)
        waiting = GaugeMetricFamily("brokerbed_link_queue_messages", "messages that wait for a link", labels=labels)
        upward = GaugeMetricFamily("brokerbed_link_upward", "1 for the link to the parent, 0 for others", labels=labels)
        for session in snapshot.links:
            if session.link is not None:
                ends = [name, session.link.peer]
                connected.add_metric(ends, session.connection is not None)
                waiting.add_metric(ends, len(session.queue))
                upward.add_metric(ends, session.link.is_parent)
                if session.connection is not None:
                    silent.add_metric(ends, max(0, now_ns - session.connection.last_ns) / NS_PER_S)
        yield from (connected, silent, waiting, upward)

    def _under_way(self, snapshot: _Snapshot) -> int:
        """Messages in progress; 0 if and only if nothing is left to do. Unwritten output counts 1 per connection."""
        broker = self._broker
        unread = sum(
            1 for connection in broker.connections if connection.output or connection.driver.get_write_buffer_size()
        )
        announced = sum(session.link.announced.open for session in snapshot.links if session.link is not None)
        return broker.entering + snapshot.open_messages + unread + announced


async def serve(broker: Broker, host: str, port: int, now_ns: Callable[[], int]) -> asyncio.Server:
    """Answer every HTTP request with the metrics. `now_ns`: the clock of the broker's driver."""
    registry = CollectorRegistry()
    lag = LoopLag()
    lag.watch(asyncio.get_running_loop())
    registry.register(BrokerCollector(broker, lag, now_ns))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S_MAX)
            body = generate_latest(registry)
            writer.write(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the scraper has disconnected
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES_MAX)
