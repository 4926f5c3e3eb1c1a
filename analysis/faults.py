"""The faults of a run as the log tells them, and the time that they take out of the comparison. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

FOREVER_NS = 1 << 62
RESYNC_NS = 1_000_000_000  # a resynchronisation so soon after the healing was seen belongs to that fault


class Mark(NamedTuple):
    """A row of the log that tells of a fault, or of a broker that begins a life."""

    run: int
    broker: str
    event: str
    time_ns: int
    position: int
    client: str | None
    sequence: int | None


@dataclass(frozen=True, slots=True)
class Fault:
    run: int
    number: int
    what: str
    struck_ns: int
    has_effect: bool = False  # as a probe saw
    healed_ns: int | None = None
    confirmed_ns: int | None = None  # a probe saw that all was well again
    through_ns: int | None = None  # the backlog that it caused was gone

    @property
    def until_ns(self) -> int:
        """The models know nothing of what happens until then."""
        if self.confirmed_ns is None:
            return FOREVER_NS
        return max(self.confirmed_ns, self.through_ns or 0) + 1


def faults_of(marks: Iterable[Mark]) -> list[Fault]:
    found: dict[tuple[int, int], Fault] = {}
    for mark in sorted((it for it in marks if it.event != "started"), key=lambda it: (it.run, it.time_ns)):
        assert mark.sequence is not None
        key = mark.run, mark.sequence
        if mark.event == "fault":
            found[key] = Fault(mark.run, mark.sequence, mark.client or "", mark.time_ns)
        elif key in found:
            changes = {
                "fault_confirmed": {"has_effect": True},
                "healed": {"healed_ns": mark.time_ns},
                "heal_confirmed": {"confirmed_ns": mark.time_ns},
            }[mark.event]
            found[key] = replace(found[key], **changes)  # type: ignore[arg-type]
    return list(found.values())


class Life(NamedTuple):
    """Of a broker, but not its first."""

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
    found = []
    for (run, broker), lives in sorted(started.items()):
        lives.sort(key=lambda it: it.position)
        ends = [*(it.position for it in lives[1:]), FOREVER_NS]
        for life, (mark, end) in enumerate(zip(lives, ends, strict=True), 1):
            if life > 1:
                found.append(Life(run, broker, life, mark.time_ns, mark.position, end))
    return found
