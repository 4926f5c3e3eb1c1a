"""The contract of a ground: it plays a scenario and leaves raw logs behind. Nothing else differs between grounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from brokerbed.orchestrator.grounds.clocks import Clocks
from brokerbed.scenario import Scenario

Progress = Callable[[float], None]  # the part that is done, 0 to 1
Tell = Callable[[str], None]  # a line for who waits
Announce = Callable[[Mapping[str, tuple[str, int]]], None]  # where the metrics of each broker are


class GroundError(Exception):
    """The run cannot go on; the text is one sentence. `is_missing`: for want of something on this machine."""

    def __init__(self, text: str, is_missing: bool = False) -> None:
        super().__init__(text)
        self.is_missing = is_missing


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run finds its scenario and leaves its logs: raw/<broker> and raw/clients, a pair of files per life."""

    scenario_file: Path
    point: int  # of its sweep
    raw: Path
    announce: Announce = lambda _: None  # called when all brokers are up


@dataclass(slots=True)
class Played:
    """What happened, as far as the logs do not tell.

    `start_ns` is the wall time of model time zero and `until_ns` that of the end; records of brokers have wall time
    then. Without them all records have model time.
    """

    has_begun: bool = True  # model time has; what was logged before has no place in the log
    start_ns: int | None = None
    until_ns: int | None = None
    clocks: Clocks = field(default_factory=Clocks)  # of brokers on other machines
    notes: dict[str, Any] = field(default_factory=dict)  # for run.json
    warnings: list[str] = field(default_factory=list)  # why its figures may be wrong


class Ground(Protocol):
    @property
    def played(self) -> Played:
        """Also of a run that was interrupted."""

    def check(self, scenario: Scenario) -> None:
        """Raises GroundError if this machine cannot hold it. Nothing is begun."""

    def prepare(self, tell: Tell) -> None:
        """What is made once and stays, and may take minutes."""

    def play(self, scenario: Scenario, place: Place, progress: Progress) -> None:
        """From the first broker to the drain. Whatever happens, nothing is left running when it returns or raises."""

    def stop(self) -> None:
        """Soon, as if by Ctrl-C: `play` raises KeyboardInterrupt. May be called from a signal handler."""
