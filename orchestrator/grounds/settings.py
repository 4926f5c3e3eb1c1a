"""The configuration of a scenario's brokers, as the `brokerbed broker` of a real ground reads it."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.crowd import copies_of
from brokerbed.orchestrator.grounds.base import Place
from brokerbed.orchestrator.simulator.simulation import MOVE_TIMEOUT_S
from brokerbed.scenario import Scenario
from brokerbed.scenario.law import Law

UNLIMITED = 1 << 40
CONFIG, SECRET = "broker.toml", "link.secret"


def new_secret() -> str:
    """What the brokers of one run have in common, so that nobody else can pose as one of them."""
    return secrets.token_hex(32)


def broker_files(
    scenario: Scenario, broker: str, link_secret: str, address: tuple[str, int] | None = None
) -> dict[str, bytes]:
    """What a broker finds in its folder when it starts. `address`: where others reach it, if their links may move."""
    settings = _broker_settings(scenario, broker)
    if address is not None:
        settings = {"address": f"{address[0]}:{address[1]}", **settings}
    return {CONFIG: tomli_w.dumps(settings).encode(), SECRET: link_secret.encode()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Into a folder that only its owner can look into."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _broker_settings(scenario: Scenario, broker: str) -> dict[str, Any]:
    """What the broker's configuration file says. Durations are wall time."""
    speedup = scenario.clock.speedup
    demands = {"broker_in": scenario.service.broker_in, "link": scenario.service.link}
    sessions = {
        copy.id: _demand(peer.session_service, speedup)
        for peer in scenario.subscribers
        if broker in peer.places and peer.session_service is not None
        for copy in copies_of(scenario, peer)
    }
    position = scenario.tree.index[broker]
    parent = {} if position == 0 else {"parent": {"name": scenario.tree.names[int(scenario.tree.parents[position])]}}
    return {
        "testbed": True,
        "allow_anonymous": True,
        **({"move_timeout_s": MOVE_TIMEOUT_S} if scenario.peers_roam else {}),
        "link_secret_file": SECRET,
        **parent,
        "routing_parameters": dict(scenario.routing_parameters),
        "limits": {
            "keep_alive_max_s": 0,
            "partial_bytes_max": UNLIMITED,
            "queue_messages_max": scenario.limits.messages,
            "queue_bytes_max": scenario.limits.bytes,
            "queue_policy": scenario.limits.policy,
            "refresh_s": (scenario.refresh_ns or 0) / NS_PER_S / speedup,
        },
        "service": {
            "seed": str(scenario.seed),
            "per_copy": scenario.copies > 1,
            **{key: _demand(law, speedup) for key, law in demands.items() if law is not None},
            "sessions": sessions,
        },
        **_placement(scenario),
    }


def _placement(scenario: Scenario) -> dict[str, Any]:
    given, costs = scenario.placement, scenario.costs
    if given is None:
        return {}
    assert costs is not None, "with placement, traffic has costs"
    written = {
        "seed": str(scenario.seed), "period_s": given.period / NS_PER_S / scenario.clock.speedup, "gain": given.gain,
        "alpha": given.alpha, "beta": given.beta,
        "moves": given.moves, "iterations": given.iterations, "tenure": given.tenure,
        "link_cost": costs.link, "broker_cost": costs.broker, "brokers": dict(costs.brokers),
        "links": [{"between": sorted(ends), "cost": cost} for ends, cost in costs.links.items()],
    }  # fmt: skip
    return {"placement": written}


def _demand(law: Law, speedup: float) -> dict[str, Any]:
    cv = {"cv": law.cv} if law.cv is not None else {}
    return {"mean_s": law.mean / NS_PER_S / speedup, "law": law.law, **cv}


def clients_options(scenario: Scenario, place: Place, part: int, parts: int, log: str) -> list[str]:
    """Of a process with a part of the clients (clients/process.py), beside the scenario's file."""
    options = ["--point", str(place.point), "--seed", str(scenario.seed), "--log", log]
    options += ["--measure-ns", str(scenario.clock.measure)]
    return [*options, "--part", str(part), "--parts", str(parts)]
