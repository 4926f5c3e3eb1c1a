"""The peers of the live page: all copies of a peer together, their queues, and the delays of messages. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from brokerbed.scenario import Publisher, Scenario

PeerState = Mapping[str, Any]  # one copy of a peer, as clients/process.py reports it
Way = tuple[str, str]  # publisher and subscriber


def table(scenario: Scenario, states: Iterable[PeerState]) -> list[dict[str, Any]]:
    """One row per peer. The queue of a subscriber or responder is what was sent to it and not processed, that of a
    publisher is what it has not sent, and that of a requester the answers that it waits for. `places` says where a peer
    that roams is, or was before it went OFF: its broker, or the number of copies at each broker.
    """
    states = list(states)
    sent = {peer["id"]: peer["sent"] for peer in states if peer["sent"] is not None}
    streams: dict[str, list[Publisher]] = {receiver.id: [] for receiver in scenario.receivers}
    for stream, receiver in scenario.pairs():
        streams[receiver.id].append(stream)
    rows: dict[str, dict[str, Any]] = {}
    roaming: dict[str, list[str]] = {it.id: [] for it in (*scenario.publishers, *scenario.subscribers) if it.roams}
    for peer in states:
        name, copy = _split(scenario, peer["id"])
        row = rows.setdefault(name, {"peer": name, "copies": 0, "connected": 0, "queue": 0, "places": ""})
        if name in roaming:
            roaming[name].append(peer["broker"])
            row["places"] = _places(roaming[name])
        row["copies"] += 1
        row["connected"] += peer["connected"]
        if name not in streams:
            row["queue"] += peer["queue"]
            continue
        for stream in (scenario.copy_of(each, copy) for each in streams[name]):
            row["queue"] += sent[stream.cause] - peer["seen"].get(stream.id, (0,))[0]
    return sorted(rows.values(), key=lambda row: str(row["peer"]))


def _places(brokers: list[str]) -> str:
    counts = sorted(Counter(brokers).items())
    return brokers[0] if len(brokers) == 1 else ", ".join(f"{broker} {count}" for broker, count in counts)


def delays(scenario: Scenario, states: Iterable[PeerState]) -> dict[Way, tuple[int, float]]:
    """The number of messages for each pair, and the sum of their delays; of answers, since the request."""
    totals: dict[Way, tuple[int, float]] = {}
    for peer in states:
        subscriber = _split(scenario, peer["id"])[0]
        for publisher, (_, count, delay_s) in peer["seen"].items():
            way = _split(scenario, publisher.partition("/")[0])[0], subscriber
            before = totals.get(way, (0, 0.0))
            totals[way] = before[0] + count, before[1] + delay_s
    return totals


def _split(scenario: Scenario, name: str) -> tuple[str, int]:
    """The id of the peer, and the number of its copy."""
    if scenario.copies == 1:
        return name, 0
    peer, _, copy = name.rpartition(".")
    return peer, int(copy)
