"""The configuration of a scenario's brokers, as the `brokerbed broker` of a real ground reads it."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.crowd import copies_of
from brokerbed.orchestrator.grounds.base import Place
from brokerbed.scenario import Scenario
from brokerbed.scenario.format import Law

UNLIMITED = 1 << 40
CONFIG, SECRET = "broker.toml", "link.secret"


def new_secret() -> str:
    """What the brokers of one run have in common, so that nobody else can pose as one of them."""
    return secrets.token_hex(32)


def broker_files(scenario: Scenario, broker: str, link_secret: str) -> dict[str, bytes]:
    """What a broker finds in its folder when it starts."""
    return {CONFIG: _broker_toml(scenario, broker).encode(), SECRET: link_secret.encode()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Into a folder that only its owner can look into."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _broker_toml(scenario: Scenario, broker: str) -> str:
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
        f'link_secret_file = "{SECRET}"',
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
