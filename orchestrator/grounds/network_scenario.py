"""The scenario of a test network, built from keyword arguments instead of a file; prepares the machine for it."""

import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.machine import check_machine
from brokerbed.scenario import Scenario, ScenarioError, load

FILE = "network.yaml"
SETTINGS = ("refresh", "limits", "links", "service")  # keys of the scenario format, beside topology, routing and so on
HANDLES, HANDLES_PER_BROKER = 400, 16  # open files, if allowed: the caller's own, and those of brokers and clients


def network_scenario(folder: Path, settings: Mapping[str, Any]) -> Scenario:
    """Writes a scenario file without a workload and loads it, so that trees are described in one way only."""
    for key in settings:
        if key not in ("topology", "routing", "durability", *SETTINGS):
            raise ValueError(f"there is no setting {key}; there are routing, durability, {', '.join(SETTINGS)}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    head = {"scenario": 1, "name": "network", "clock": {"measure": "1s"}}
    try:
        file.write_text(json.dumps({**head, **settings}, indent=1), encoding="utf-8")  # JSON is valid YAML
        return load(file).points[0]
    except TypeError as error:
        raise ValueError(f"the network cannot be described: {error}") from None
    except ScenarioError as error:
        raise ValueError("; ".join(f"{problem.key}: {problem.message}" for problem in error.problems)) from None


def prepare(scenario: Scenario, is_local: bool) -> None:
    """Ends what killed runs left behind, and raises GroundError if this machine cannot hold the brokers."""
    journal.clean()
    if is_local:
        check_machine(scenario, 1)
    needed = HANDLES + HANDLES_PER_BROKER * len(scenario.tree.names)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
