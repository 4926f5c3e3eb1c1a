"""The invariants by name, and what checking them yields. Pure."""

from dataclasses import dataclass
from typing import Any, NamedTuple

NOT_LOST, ACCOUNTED, SUBSCRIBED = (
    "no_acknowledged_message_lost", "every_message_accounted_for", "no_delivery_without_subscription",
)  # fmt: skip
ORDERED, ONCE, TABLES, FAULTS = (
    "publisher_order_kept", "no_duplicate_at_qos2", "tables_right_at_end", "faults_took_effect",
)  # fmt: skip
INVARIANTS = (NOT_LOST, ACCOUNTED, SUBSCRIBED, ORDERED, ONCE, TABLES, FAULTS)


class Judged(NamedTuple):
    """The number of checks and of violations at one place; the text describes the violation, and orders it if the
    moments are equal."""

    run: int
    name: str
    checked: int
    broken: int
    moment: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Invariant:
    name: str
    checked: int
    broken: int
    offenders: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.broken == 0

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.name, "holds": self.holds, "checked": self.checked}
        if not self.holds:
            entry |= {"broken": self.broken, "offenders": list(self.offenders)}
        return entry
