"""Whether this machine can hold a scenario's processes, and what they write."""

import os
import resource
from collections import Counter
from contextlib import suppress
from pathlib import Path

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.scenario import Scenario

BROKER_MB, CONTAINER_MB, CLIENTS_MB = 32, 36, 120  # about what they take; measured, see docs/grounds.md and docker.md
SPACE_BYTES_MIN = 2**20  # brokers and clients write less than this between two checks
HANDLES_PER_BROKER, HANDLES_OWN = 10, 200  # three pipes, two ports, up to five for the relay of its link


def check_machine(scenario: Scenario, parts: int) -> None:
    """Raises GroundError if it cannot hold so many processes; `parts` of them have clients."""
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
    needed_mb, free_mb = brokers * broker_mb + parts * CLIENTS_MB, _available_mb()
    if free_mb is not None and needed_mb > free_mb:
        raise GroundError(
            f"{brokers} running brokers need about {needed_mb / 1000:.1f} GB of memory, and only"
            f" {free_mb / 1000:.1f} GB are free: make the tree smaller, or run it --on virtual",
            is_missing=True,
        )


def _handles(scenario: Scenario, parts: int) -> int:
    """Of that process which needs most: the orchestrator, one with clients, or a broker."""
    peers = [peer.broker for peer in (*scenario.publishers, *scenario.subscribers)]
    own = len(scenario.tree.names) * HANDLES_PER_BROKER
    clients = (len(peers) * scenario.copies + len(scenario.tree.names)) // parts
    busiest = max(Counter(peers).values(), default=0) * scenario.copies
    return HANDLES_OWN + max(own, clients, busiest)


def use_all_handles() -> None:
    """As many open files as are allowed, here and in processes that are started from now on."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_space(folder: Path) -> None:
    """Raises GroundError if the disk is full: brokers make their clients wait then, and what they measure is void."""
    space = os.statvfs(folder)
    free = space.f_bfree if os.geteuid() == 0 else space.f_bavail  # some blocks are kept for root
    if free * space.f_frsize < SPACE_BYTES_MIN:
        raise GroundError(f"{folder}: No space left on device; the run was ended", is_missing=True)


def _available_mb() -> float | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 1000
    return None
