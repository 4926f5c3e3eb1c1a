"""What the live page shows, once a second: rates, tables and queues as brokers say, set beside the predictions.

Rates are per second of model time. Averages are over the measured time so far; the analysis has the last word, as it
sees every message, and this only counters.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.values import NS_PER_S
from orchestrator.grounds import watch
from orchestrator.grounds.real import RealRun

PERIOD_S = 1.0
NOTIFICATIONS, CONTROL = ("notification",), ("subscribe", "unsubscribe")
SHOWN = {
    "table.remote_entries": "remote",
    "table.local_entries": "local",
    "rate.notifications": "notifications",
    "rate.control": "control",
}  # of the headline metrics those that can be told from counters


@dataclass
class Average:
    """Over model time."""

    total: float = 0.0
    time_s: float = 0.0

    def add(self, amount: float, time_s: float) -> None:
        self.total += amount
        self.time_s += time_s

    @property
    def value(self) -> float | None:
        return self.total / self.time_s if self.time_s else None


@dataclass
class BrokerLook:
    """One broker when it was last asked."""

    local: float = 0.0
    remote: float = 0.0
    queue: float = 0.0
    connections: float = 0.0
    sent: dict[tuple[str, str], float] = field(default_factory=dict)  # by peer and kind, since it started

    @classmethod
    def of(cls, samples: Iterable[watch.Sample]) -> "BrokerLook":
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
    """By how much counters have grown; one that has shrunk began anew, with its broker."""
    return {key: value - old if value >= (old := before.get(key, 0.0)) else value for key, value in after.items()}


class Feed:
    """Of one run. `look` is called again and again; `told` is what was seen last, for JSON."""

    def __init__(self, run: RealRun, predicted: Mapping[str, float | None]) -> None:
        self._run = run
        self._predicted = predicted
        self._looks: dict[str, BrokerLook] = {}
        self._at_s: float | None = None
        self._averages = {it: Average() for it in SHOWN.values()}
        self._rates: dict[str, list[float]] = {}  # by child: notifications up and down, all the rest
        self.told: dict[str, Any] = {}

    async def look(self) -> None:
        run = self._run
        names = [name for name, host in run.hosts.items() if host.serving]
        found = await asyncio.gather(*(watch.scrape(run.hosts[name].metrics) for name in names))
        clients = await run.clients_state()
        at_s = time.monotonic()
        looks = {
            name: BrokerLook.of(samples) for name, samples in zip(names, found, strict=True) if samples is not None
        }
        if self._at_s is not None:
            self._count(looks, (at_s - self._at_s) * run.clock.speedup)
        self._looks |= looks
        self._at_s = at_s
        self.told = self._told(clients)

    def _count(self, looks: Mapping[str, BrokerLook], passed_s: float) -> None:
        rates: dict[str, list[float]] = {child: [0.0, 0.0, 0.0] for child in self._run.links}
        sums = dict.fromkeys(self._averages, 0.0)
        for name, look in looks.items():
            sums["local"] += look.local * passed_s
            sums["remote"] += look.remote * passed_s
            for (peer, kind), count in grown(self._looks.get(name, BrokerLook()).sent, look.sent).items():
                is_up = self._is_parent(name, peer)
                rate = rates[name if is_up else peer]
                if kind in NOTIFICATIONS:
                    rate[0 if is_up else 1] += count / passed_s
                    sums["notifications"] += count
                else:
                    rate[2] += count / passed_s
                    sums["control"] += count if kind in CONTROL else 0
        self._rates = rates
        if self._run.clock.now_ns - passed_s * NS_PER_S >= self._run.scenario.clock.warmup and self._is_whole(looks):
            for name, average in self._averages.items():
                average.add(sums[name], passed_s)

    def _is_parent(self, name: str, peer: str) -> bool:
        link = self._run.links.get(name)
        return link is not None and link.parent.name == peer

    def _is_whole(self, looks: Mapping[str, BrokerLook]) -> bool:
        """Faults are no part of what is compared; here only their time itself is left out."""
        return len(looks) == len(self._run.hosts) and self._run.faults.is_quiet

    def _told(self, clients: Mapping[str, Any]) -> dict[str, Any]:
        run = self._run
        clock = run.scenario.clock
        return {
            "now_s": run.clock.now_ns / NS_PER_S,
            "warmup_s": clock.warmup / NS_PER_S,
            "end_s": run.end_ns / NS_PER_S,
            "brokers": {name: self._broker(name) for name in run.hosts},
            "links": {
                child: {
                    "rates": self._rates.get(child, [0.0, 0.0, 0.0]),
                    "connected": link.is_connected, "cut": link.is_held("up") or link.is_held("down"),
                }
                for child, link in run.links.items()
            },
            "compared": [
                {"metric": metric, "predicted": self._predicted.get(metric), "measured": self._averages[name].value}
                for metric, name in SHOWN.items()
            ],
            "peers": list(clients["peers"]),
            "faults": run.faults.history_as_json(),
        }  # fmt: skip

    def _broker(self, name: str) -> dict[str, Any]:
        host, look = self._run.hosts[name], self._looks.get(name, BrokerLook())
        state = (
            "crashed" if not host.is_up else "paused" if host.is_paused else "serving" if host.serving else "starting"
        )
        return {
            "state": state, "local": look.local, "remote": look.remote, "queue": look.queue,
            "connections": look.connections,
        }  # fmt: skip


def positions(parents: Mapping[str, str | None]) -> dict[str, tuple[float, float]]:
    """Where brokers are drawn: from 0 to 1 from left to right and from the root down. Leaves are evenly spread."""
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    order, left = list[str](), [*reversed(children[None])]
    depth = dict.fromkeys(children[None], 0)
    while left:
        name = left.pop()
        order.append(name)
        for child in children.get(name, []):
            depth[child] = depth[name] + 1
        left += reversed(children.get(name, []))
    leaves: Sequence[str] = [name for name in order if name not in children]
    across = {name: (number + 0.5) / len(leaves) for number, name in enumerate(leaves)}
    for name in reversed(order):
        if name in children:
            below = [across[child] for child in children[name]]
            across[name] = sum(below) / len(below)
    deepest = max(1, *depth.values())
    return {name: (across[name], depth[name] / deepest) for name in parents}
