"""What a kind of fault is.

When faults strike, for how long, and how their effect is confirmed is the same for all kinds and is not decided here
(orchestrator/faults.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from brokerbed.scenario.checks import Path, Report
from brokerbed.scenario.faults.network import StruckNetwork

if TYPE_CHECKING:  # format.py builds its keys from these records
    from brokerbed.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault that has struck: how it heals, and what a probe would see."""

    what: str  # the verb and the target, as the log and the reports show it
    brokers: frozenset[str]  # whose state the probes need
    heal: Callable[[], None]
    has_effect: Callable[[], bool]
    is_over: Callable[[], bool]


class Target(Protocol):
    """What a fault strikes: a broker, a link or a peer (see targets.py)."""

    @property
    def annotation(self) -> Any:
        """The pydantic type of the key in the scenario file; `any` is one of its values."""

    def check(self, verb: str, value: Any, scenario: "Scenario", path: Path, report: Report) -> None:
        """Reports what the scenario names but does not have."""

    def parse_json(self, value: object) -> Any:
        """A target as the live page sends it. ValueError says in a sentence what it must look like."""

    def check_present(self, verb: str, value: Any, network: StruckNetwork) -> None:
        """ValueError if the network has nothing of this name."""

    def choose(self, value: Any, network: StruckNetwork, draws: Random) -> Any:
        """What is struck, drawn at random if the value is `any`; None if there is nothing to strike."""

    def is_near_link(self, value: Any, ends: tuple[str, str]) -> bool:
        """Whether a fault with this target may strike the link between these brokers."""

    def texts_near_link(self, ends: tuple[str, str]) -> list[str]:
        """All targets, as `Strike.what` names them, whose faults may lose what is under way on this link."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """Everything that other parts of brokerbed may ask about a kind of fault; none of them tests for its name."""

    name: str  # the verb, which is the key in the scenario file
    summary: str  # one line of documentation
    target: Target
    strike: Callable[..., Strike | None]  # (network, what target.choose gave, **options); None: nothing to strike
    options: Mapping[str, Any] = field(default_factory=dict)  # further keys of the scenario file, with their types
    check_options: Callable[..., None] | None = None  # (target or None, **options); raises part.problem
    kills_brokers: bool = False  # so that only what they have stored survives
    cuts_links: bool = False  # so that the links near its target must be such that they can be cut
