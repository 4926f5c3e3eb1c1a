"""The data of the live page, updated every second: rates, tables and queues of the brokers, beside the predictions.

Rates are per second of model time. Averages are over the measured time so far. They come from counters only; the
analysis, which sees every message, is authoritative.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from brokerbed.broker.values import NS_PER_S
from brokerbed.orchestrator.grounds import watch
from brokerbed.orchestrator.grounds.real import RealRun
from brokerbed.orchestrator.live import peers
from brokerbed.scenario.sampling import sampled_pairs

PERIOD_S = 1.0
NOTIFICATIONS = ("notification", "unadvertised")
CONTROL = ("subscribe", "unsubscribe", "advertise", "unadvertise", "refresh")
SHOWN = {
    "table.remote_entries": "remote",
    "table.local_entries": "local",
    "table.advertisements": "advertisement",
    "rate.notifications": "notifications",
    "rate.control": "control",
}  # the headline metrics that can be computed from counters
DELAY, ROUND_TRIP = "delay.end_to_end", "delay.round_trip"
Predicted = Mapping[tuple[str, ...], float | None]  # by metric and the values of its labels


@dataclass
class Average:
    """A running average over model time, or over messages."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, amount: float, weight: float) -> None:
        self.total += amount
        self.weight += weight

    @property
    def value(self) -> float | None:
        return self.total / self.weight if self.weight else None


@dataclass
class BrokerCounters:
    """The counters of one broker when it was last queried."""

    local: float = 0.0
    remote: float = 0.0
    queue: float = 0.0
    connections: float = 0.0
    advertisement: float = 0.0
    sent: dict[tuple[str, str], float] = field(default_factory=dict)  # by peer and kind, since the broker started

    @classmethod
    def of(cls, samples: Iterable[watch.Sample]) -> "BrokerCounters":
        look = cls()
        for name, labels, value in samples:
            if name == "brokerbed_routing_entries":
                setattr(look, labels["scope"], value)
            elif name == "brokerbed_session_queue_messages":
                look.queue = value
            elif name == "brokerbed_connections":
                look.connections = value
            elif name == "brokerbed_link_messages_total":
                look.sent[labels["peer"], labels["kind"]] = value
        return look


def grown(
    before: Mapping[tuple[str, str], float], after: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], float]:
    """How much counters have grown. A counter that has shrunk was reset by a restart of its broker."""
    return {key: value - old if value >= (old := before.get(key, 0.0)) else value for key, value in after.items()}


class Feed:
    """The data of one run. `look` is called periodically; `state` is the last result, for JSON."""

    def __init__(self, run: RealRun, predicted: Predicted) -> None:
        self._run = run
        self._predicted = predicted
        self._looks: dict[str, BrokerCounters] = {}
        self._at_s: float | None = None
        algorithm = run.scenario.algorithm
        self._shown = {
            metric: name for metric, name in SHOWN.items() if name != "advertisement" or algorithm.advertises
        }
        self._averages = {name: Average() for name in self._shown.values()}
        exchanges = {(requester.id, responder.id) for requester, responder in run.scenario.exchanges()}
        self._answers = {(responder, requester) for requester, responder in exchanges}
        self._delays = {way: Average() for way in sampled_pairs(run.scenario) if way not in exchanges}
        self._since_ns = 0  # messages published earlier may have been held by a fault
        self._delayed: dict[peers.Way, tuple[int, float]] = {}  # count and sum of delays at the last query
        self._rates: dict[str, list[float]] = {}  # by child: notifications up, notifications down, other messages
        self.state: dict[str, Any] = {}

    async def look(self) -> None:
        run = self._run
        names = [name for name, host in run.hosts.items() if host.serving]
        scraped = await asyncio.gather(*(watch.scrape(run.hosts[name].metrics) for name in names))
        if not run.faults.is_quiet:
            self._since_ns = run.clock.now_ns
        clients = await run.peers(self._since_ns)
        at_s = time.monotonic()
        looks = {
            name: BrokerCounters.of(samples)
            for name, samples in zip(names, scraped, strict=True)
            if samples is not None
        }
        if self._at_s is not None:
            self._count(looks, peers.delays(run.scenario, clients), (at_s - self._at_s) * run.clock.speedup)
        self._looks |= looks
        self._at_s = at_s
        self.state = self._as_json(clients)

    def _count(
        self, looks: Mapping[str, BrokerCounters], delayed: dict[peers.Way, tuple[int, float]], passed_s: float
    ) -> None:
        rates: dict[str, list[float]] = {child: [0.0, 0.0, 0.0] for child in self._run.links}
        sums = dict.fromkeys(self._averages, 0.0)
        for name, look in looks.items():
            for table in ("local", "remote", "advertisement"):
                if table in sums:
                    sums[table] += getattr(look, table) * passed_s
            for (peer, kind), count in grown(self._looks.get(name, BrokerCounters()).sent, look.sent).items():
                is_up = self._is_parent(name, peer)
                rate = rates.get(name if is_up else peer, [0.0, 0.0, 0.0])  # none: the link has moved since
                if kind in NOTIFICATIONS:
                    rate[0 if is_up else 1] += count / passed_s
                    sums["notifications"] += count
                else:
                    rate[2] += count / passed_s
                    sums["control"] += count if kind in CONTROL else 0
        self._rates = rates
        if self._run.clock.now_ns - passed_s * NS_PER_S >= self._run.scenario.clock.warmup and self._is_complete(looks):
            for name, average in self._averages.items():
                average.add(sums[name], passed_s)
            for way, delay in self._delays.items():
                count, total_s = delayed.get(way, (0, 0.0))
                count_before, before_s = self._delayed.get(way, (0, 0.0))
                delay.add(total_s - before_s, count - count_before)
        self._delayed = delayed

    def _is_parent(self, name: str, peer: str) -> bool:
        link = self._run.links.get(name)
        return link is not None and link.parent.name == peer

    def _is_complete(self, looks: Mapping[str, BrokerCounters]) -> bool:
        """Whether this moment counts: all brokers answered and no fault lasts. Unlike the analysis, this includes the
        aftermath of faults.
        """
        return len(looks) == len(self._run.hosts) and self._run.faults.is_quiet

    def _as_json(self, clients: list[dict[str, Any]]) -> dict[str, Any]:
        run = self._run
        clock = run.scenario.clock
        return {
            "now_s": run.clock.now_ns / NS_PER_S,
            "warmup_s": clock.warmup / NS_PER_S,
            "end_s": run.end_ns / NS_PER_S,
            "brokers": {name: self._broker(name) for name in run.hosts},
            "links": {
                child: {
                    "parent": link.parent.name, "rates": self._rates.get(child, [0.0, 0.0, 0.0]),
                    "connected": link.is_connected, "cut": link.is_held("up") or link.is_held("down"),
                }
                for child, link in run.links.items()
            },
            "compared": [
                *(self._compared(self._averages[name], metric) for metric, name in self._shown.items()),
                *(self._compared_delay(average, way) for way, average in self._delays.items()),
            ],
            "peers": peers.table(run.scenario, clients),
            "faults": run.faults.history_as_json(),
        }  # fmt: skip

    def _compared_delay(self, measured: Average, way: peers.Way) -> dict[str, Any]:
        """The delay of an answer is known since its request only, so that it is the round trip."""
        if way in self._answers:
            return self._compared(measured, ROUND_TRIP, *reversed(way))
        return self._compared(measured, DELAY, *way)

    def _compared(self, measured: Average, metric: str, *of: str) -> dict[str, Any]:
        predicted = self._predicted.get((metric, *of))
        return {"metric": metric, "of": " → ".join(of), "predicted": predicted, "measured": measured.value}

    def _broker(self, name: str) -> dict[str, Any]:
        host, look = self._run.hosts[name], self._looks.get(name, BrokerCounters())
        state = (
            "crashed" if not host.is_up else "paused" if host.is_paused else "serving" if host.serving else "starting"
        )
        return {
            "state": state, "local": look.local, "remote": look.remote, "queue": look.queue,
            "connections": look.connections,
        }  # fmt: skip
