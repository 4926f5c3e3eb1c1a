"""The configuration of a scenario's brokers, as the `brokerbed broker` of a real ground reads it."""

import json
from typing import Any

from broker.values import NS_PER_S
from clients.crowd import copies_of
from orchestrator.grounds.base import Place
from orchestrator.scenario import Scenario
from orchestrator.scenario.format import Law

UNLIMITED = 1 << 40


def broker_toml(scenario: Scenario, broker: str) -> str:
    """Durations are wall time."""
    speedup = scenario.clock.speedup
    limits: dict[str, Any] = {
        "keep_alive_max_s": 0,
        "partial_bytes_max": UNLIMITED,
        "queue_messages_max": scenario.limits.messages,
        "queue_bytes_max": scenario.limits.bytes,
        "queue_policy": scenario.limits.policy,
        "refresh_s": (scenario.refresh_ns or 0) / NS_PER_S / speedup,
    }
    service = {"seed": str(scenario.seed), "per_copy": scenario.copies > 1}
    position = scenario.tree.index[broker]
    parent = (
        [] if position == 0 else ["[parent]", f'name = "{scenario.tree.names[int(scenario.tree.parents[position])]}"']
    )
    lines = [
        "testbed = true",
        "allow_anonymous = true",
        *parent,
        "[limits]",
        *_entries(limits),
        "[service]",
        *_entries(service),
    ]
    for key, law in (("broker_in", scenario.service.broker_in), ("link", scenario.service.link)):
        if law is not None:
            lines.append(f"{key} = {_demand(law, speedup)}")
    stages = [
        f"{json.dumps(copy.id)} = {_demand(peer.session_service, speedup)}"
        for peer in scenario.subscribers
        if peer.broker == broker and peer.session_service is not None
        for copy in copies_of(scenario, peer)
    ]
    return "\n".join([*lines, "[service.sessions]", *stages]) + "\n"


def clients_options(scenario: Scenario, place: Place, part: int, parts: int, log: str) -> list[str]:
    """Of a process with a part of the clients (clients/process.py), beside the scenario's file."""
    options = ["--point", str(place.point), "--seed", str(scenario.seed), "--log", log]
    return [*options, "--part", str(part), "--parts", str(parts)]


def _entries(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]


def _demand(law: Law, speedup: float) -> str:
    cv = f", cv = {law.cv}" if law.cv is not None else ""
    return f'{{mean_s = {law.mean / NS_PER_S / speedup!r}, law = "{law.law}"{cv}}}'
