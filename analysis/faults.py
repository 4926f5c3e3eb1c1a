"""The faults of a run according to its log, and the time that they exclude from the comparison. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

FOREVER_NS = 1 << 62
RESYNC_NS = 1_000_000_000  # a resynchronisation within this time after the repair belongs to the fault


EVENTS = ("fault", "fault_confirmed", "healed", "heal_confirmed")


class Mark(NamedTuple):
    """A row of the log about a fault, the start of a broker, or a link that moves."""

    run: int
    broker: str
    event: str
    time_ns: int
    position: int
    client: str | None
    sequence: int | None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    run: int
    number: int
    what: str
    struck_ns: int
    has_effect: bool = False  # confirmed by a probe
    healed_ns: int | None = None
    confirmed_ns: int | None = None  # when a probe confirmed the repair
    through_ns: int | None = None  # when the backlog that the fault caused was gone

    @property
    def until_ns(self) -> int:
        """The end of the time that is not compared, because the models know no faults."""
        if self.confirmed_ns is None:
            return FOREVER_NS
        return max(self.confirmed_ns, self.through_ns or 0) + 1


def faults_of(marks: Iterable[Mark]) -> list[Fault]:
    faults: dict[tuple[int, int], Fault] = {}
    for mark in sorted((mark for mark in marks if mark.event in EVENTS), key=lambda mark: (mark.run, mark.time_ns)):
        assert mark.sequence is not None
        key = mark.run, mark.sequence
        if mark.event == "fault":
            faults[key] = Fault(mark.run, mark.sequence, mark.client or "", mark.time_ns)
        elif key in faults:
            changes = {
                "fault_confirmed": {"has_effect": True},
                "healed": {"healed_ns": mark.time_ns},
                "heal_confirmed": {"confirmed_ns": mark.time_ns},
            }[mark.event]
            faults[key] = replace(faults[key], **changes)  # type: ignore[arg-type]
    return list(faults.values())


class Life(NamedTuple):
    """The time between a restart of a broker and its next restart."""

    run: int
    broker: str
    life: int
    restarted_ns: int
    from_position: int
    to_position: int


def restarts_of(marks: Iterable[Mark]) -> list[Life]:
    started: dict[tuple[int, str], list[Mark]] = {}
    for mark in marks:
        if mark.event == "started":
            started.setdefault((mark.run, mark.broker), []).append(mark)
    restarts = []
    for (run, broker), lives in sorted(started.items()):
        lives.sort(key=lambda mark: mark.position)
        ends = [*(mark.position for mark in lives[1:]), FOREVER_NS]
        for life, (mark, end) in enumerate(zip(lives, ends, strict=True), 1):
            if life > 1:
                restarts.append(Life(run, broker, life, mark.time_ns, mark.position, end))
    return restarts
