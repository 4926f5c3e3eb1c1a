"""Checks whether this machine has the memory, open files and disk space that a scenario needs."""

import os
import resource
from collections import Counter
from pathlib import Path

import psutil

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.scenario import Scenario

BROKER_MB, CONTAINER_MB, CLIENTS_MB = 32, 36, 120  # approximate, measured: see docs/grounds.md and docker.md
SPACE_BYTES_MIN = 2**20  # brokers and clients write less than this between two checks
HANDLES_PER_BROKER, HANDLES_OWN = 10, 200  # three pipes, two ports, up to five for the relay of its link


def check_machine(scenario: Scenario, parts: int) -> None:
    """Raises GroundError if this machine cannot run the brokers and `parts` processes with clients."""
    check_memory(scenario, parts, BROKER_MB)
    brokers = len(scenario.tree.names)
    needed, (_, most) = _handles(scenario, parts), resource.getrlimit(resource.RLIMIT_NOFILE)
    if most not in (resource.RLIM_INFINITY, -1) and needed > most:
        raise GroundError(
            f"{brokers} brokers and their clients need about {needed} open files per process, and {most} are allowed:"
            " raise the limit (ulimit -n)",
            is_missing=True,
        )


def check_memory(scenario: Scenario, parts: int, broker_mb: int) -> None:
    brokers = len(scenario.tree.names)
    needed_mb, free_mb = brokers * broker_mb + parts * CLIENTS_MB, psutil.virtual_memory().available / 1e6
    if needed_mb > free_mb:
        raise GroundError(
            f"{brokers} running brokers need about {needed_mb / 1000:.1f} GB of memory, and only"
            f" {free_mb / 1000:.1f} GB are free: make the tree smaller, or run it --on virtual",
            is_missing=True,
        )


def _handles(scenario: Scenario, parts: int) -> int:
    """The open files of the process that needs most: the orchestrator, a process with clients, or a broker."""
    peers = [place for peer in scenario.all_peers for place in peer.places]
    own = len(scenario.tree.names) * HANDLES_PER_BROKER
    clients = (len(scenario.all_peers) * scenario.copies + len(scenario.tree.names)) // parts
    busiest = max(Counter(peers).values(), default=0) * scenario.copies
    return HANDLES_OWN + max(own, clients, busiest)


def use_all_handles() -> None:
    """Raises the limit on open files to the maximum, for this process and those it starts later."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_space(folder: Path) -> None:
    """Raises GroundError if the disk is full, because brokers then block their clients and measurements are invalid."""
    space = os.statvfs(folder)
    free = space.f_bfree if os.geteuid() == 0 else space.f_bavail  # some blocks are reserved for root
    if free * space.f_frsize < SPACE_BYTES_MIN:
        raise GroundError(f"{folder}: No space left on device; the run was ended", is_missing=True)
