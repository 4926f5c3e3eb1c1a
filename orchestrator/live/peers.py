"""Peers as the live page shows them: copies together, what waits for them, how long messages took. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from brokerbed.scenario import Scenario, matches

Told = Mapping[str, Any]  # of one copy of a peer: what clients/process.py says
Way = tuple[str, str]  # publisher and subscriber


def table(scenario: Scenario, told: Iterable[Told]) -> list[dict[str, Any]]:
    """For a subscriber waits what was sent to it and it has not worked on, for a publisher what it has not sent."""
    told = list(told)
    sent = {it["id"]: it["sent"] for it in told if it["sent"] is not None}
    publishers = {
        subscriber.id: [it.id for it in scenario.publishers if matches(subscriber.topic, it.topic)]
        for subscriber in scenario.subscribers
    }
    rows: dict[str, dict[str, Any]] = {}
    for it in told:
        name, copy = _split(scenario, it["id"])
        row = rows.setdefault(name, {"peer": name, "copies": 0, "connected": 0, "queue": 0})
        row["copies"] += 1
        row["connected"] += it["connected"]
        if it["sent"] is not None:
            row["queue"] += it["queue"]
        else:
            ids = [f"{publisher}{copy}" for publisher in publishers[name]]
            row["queue"] += sum(sent[one] - it["seen"].get(one, (0,))[0] for one in ids)
    return sorted(rows.values(), key=lambda row: str(row["peer"]))


def delays(scenario: Scenario, told: Iterable[Told]) -> dict[Way, tuple[int, float]]:
    """How many messages went each way, and how long they took together."""
    found: dict[Way, tuple[int, float]] = {}
    for it in told:
        subscriber = _split(scenario, it["id"])[0]
        for publisher, (_, count, delay_s) in it["seen"].items():
            way = _split(scenario, publisher)[0], subscriber
            before = found.get(way, (0, 0.0))
            found[way] = before[0] + count, before[1] + delay_s
    return found


def _split(scenario: Scenario, name: str) -> tuple[str, str]:
    """The peer, and what tells its copies apart."""
    if scenario.copies == 1:
        return name, ""
    peer, dot, copy = name.rpartition(".")
    return peer, dot + copy
