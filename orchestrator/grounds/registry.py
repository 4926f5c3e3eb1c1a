"""The grounds by name: ours, and those of other packages (entry points of the group `brokerbed.grounds`).

A ground is a class that meets the contract of base.py, and a record. Our records are here and not beside the classes,
because the modules of grounds are imported only when a ground is made: an SDK takes a while to import, or is not
installed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from brokerbed.orchestrator.grounds.base import Ground
from brokerbed.orchestrator.grounds.real import Watcher
from brokerbed.registry import Registry


@dataclass(frozen=True, slots=True)
class GroundKind:
    """Everything that other parts of brokerbed may ask about a ground; none of them tests for its name."""

    name: str
    summary: str  # what a broker is there
    make: Callable[[Sequence[str], Watcher | None], Ground]  # of the engines, and of who watches, if anybody does
    is_real_time: bool = True  # runs can be watched and need the machine to themselves; otherwise all cores share them
    has_engines: bool = False  # brokers may run on engines that --engine names
    extra: str | None = None  # of brokerbed, without which it cannot be used


def _virtual(engines: Sequence[str], watcher: Watcher | None) -> Ground:
    from brokerbed.orchestrator.grounds.virtual import VirtualGround

    assert not engines
    assert watcher is None
    return VirtualGround()


def _local(engines: Sequence[str], watcher: Watcher | None) -> Ground:
    from brokerbed.orchestrator.grounds.local import LocalGround

    assert not engines
    return LocalGround(watcher)


def _docker(engines: Sequence[str], watcher: Watcher | None) -> Ground:
    from brokerbed.orchestrator.grounds.docker import DockerGround

    return DockerGround(engines, watcher)


_KINDS = (
    GroundKind("virtual", "simulated", _virtual, is_real_time=False),
    GroundKind("local", "a process", _local),
    GroundKind("docker", "a container", _docker, has_engines=True, extra="docker"),
)
GROUNDS: Registry[GroundKind] = Registry(lambda: _KINDS, "brokerbed.grounds")
VIRTUAL = _KINDS[0].name
