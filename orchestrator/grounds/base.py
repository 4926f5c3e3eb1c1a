"""The contract of a ground, which plays a scenario and leaves raw logs behind. Nothing else depends on the ground."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from brokerbed.orchestrator.grounds.clocks import Clocks
from brokerbed.orchestrator.pacer import Pacer
from brokerbed.scenario import Scenario

Progress = Callable[[float], None]  # the fraction that is done, 0 to 1
Notify = Callable[[str], None]  # shows a line to the user
Announce = Callable[[Mapping[str, tuple[str, int]]], None]  # receives the address of each broker's metrics


class GroundError(Exception):
    """The run cannot continue; the message is one sentence. `is_missing`: something is missing on this machine."""

    def __init__(self, text: str, is_missing: bool = False) -> None:
        super().__init__(text)
        self.is_missing = is_missing


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run finds its scenario and leaves its logs: raw/<broker> and raw/clients, a pair of files per life."""

    scenario_file: Path
    point: int  # its position in the sweep
    raw: Path
    announce: Announce = lambda _: None  # called when all brokers are up
    pacer: Pacer | None = None  # None: the run lasts as long as its clock says


@dataclass(slots=True)
class Played:
    """What is known about a run beside its logs.

    `start_ns` is the wall time of model time zero and `until_ns` that of the end. If they are given, the records of
    brokers have wall time; otherwise all records have model time.
    """

    has_begun: bool = True  # whether model time has begun; records from before are discarded
    start_ns: int | None = None
    until_ns: int | None = None
    end_ns: int | None = None  # the model time at which measuring ended, if a pacer ended it
    clocks: Clocks = field(default_factory=Clocks)  # the clocks of brokers on other machines
    notes: dict[str, Any] = field(default_factory=dict)  # added to run.json
    warnings: list[str] = field(default_factory=list)  # reasons why the measurements may be wrong


class Ground(Protocol):
    @property
    def played(self) -> Played:
        """What happened; available for interrupted runs, too."""

    def check(self, scenario: Scenario) -> None:
        """Raises GroundError if this machine cannot run the scenario. Starts nothing."""

    def prepare(self, notify: Notify) -> None:
        """Creates what all later runs need, such as an image. This may take minutes."""

    def play(self, scenario: Scenario, place: Place, progress: Progress) -> None:
        """Runs the scenario from the start of the brokers to the drain. Leaves nothing running, even if it raises."""

    def stop(self) -> None:
        """Makes `play` raise KeyboardInterrupt soon. May be called from a signal handler."""
