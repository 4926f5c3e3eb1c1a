"""A tree of brokers that is described by a few values, not by a file, and the machine made ready for it."""

import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.machine import check_machine
from brokerbed.scenario import Scenario, ScenarioError, load

FILE = "network.yaml"
SETTINGS = ("refresh", "limits", "links", "service")  # of the scenario format, beside topology, routing, durability
HANDLES, HANDLES_PER_BROKER = 400, 16  # open files, if allowed: the caller's own, and those of brokers and clients


def described(folder: Path, settings: Mapping[str, Any]) -> Scenario:
    """A scenario file without a workload, so that there is one way to describe a tree."""
    for key in settings:
        if key not in ("topology", "routing", "durability", *SETTINGS):
            raise ValueError(f"there is no setting {key}; there are routing, durability, {', '.join(SETTINGS)}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    head = {"scenario": 1, "name": "network", "clock": {"measure": "1s"}}
    try:
        file.write_text(json.dumps({**head, **settings}, indent=1), encoding="utf-8")  # JSON is YAML, too
        return load(file).points[0]
    except TypeError as error:
        raise ValueError(f"the network cannot be described: {error}") from None
    except ScenarioError as error:
        raise ValueError("; ".join(f"{it.key}: {it.message}" for it in error.problems)) from None


def prepare(scenario: Scenario, is_local: bool) -> None:
    """Raises GroundError if it cannot hold the brokers."""
    journal.clean()
    if is_local:
        check_machine(scenario, 1)
    needed = HANDLES + HANDLES_PER_BROKER * len(scenario.tree.names)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
