"""One run on a ground, and its log as plain rows. Knows the columns of the log and nothing of the analysis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

Row = dict[str, Any]
FAULT_EVENTS = ("fault", "fault_confirmed", "healed", "heal_confirmed")


@dataclass(frozen=True)
class Done:
    """The rows of each broker, and of the clients, in the order in which they were logged."""

    folder: Path
    rows: dict[str, list[Row]]

    @property
    def clients(self) -> list[Row]:
        return self.rows["clients"]

    def messages(self, event: str, client: str) -> list[tuple[str, int]]:
        """What a client noted so, as publisher and number, in order."""
        return [(it["origin"], it["sequence"]) for it in self.clients if (it["event"], it["client"]) == (event, client)]

    def events(self, broker: str, event: str, client: str | None = None) -> list[Row]:
        return [it for it in self.rows[broker] if it["event"] == event and client in (None, it["client"])]

    def fault_times_s(self, what: str) -> list[float]:
        """When it struck, was seen, healed, and was seen to be over."""
        found = {it["event"]: it["time_ns"] / 1e9 for it in self.clients if it["client"] == what}
        return [found[event] for event in FAULT_EVENTS]


def everything_arrived(done: Done) -> None:
    """What p published, at s, in order, over all the faults; and there was something to arrive."""
    made = done.messages("published", "p")
    assert len(made) > 50
    assert made == [("p", number) for number in range(1, len(made) + 1)]
    assert done.messages("acknowledged", "p") == made
    assert list(dict.fromkeys(done.messages("processed", "s"))) == made  # QoS 1 may send twice


Play = Callable[..., Done]


def play(ground: str, folder: Path, text: str, seed: int | None = None, engines: Sequence[str] = ()) -> Done:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{ground}.yaml"
    file.write_text(text, encoding="utf-8")
    place = run(load(file), ground, seed, 1, folder / "runs", lambda _: None, engines=engines)
    table = ds.dataset(place / "log", format="parquet", partitioning="hive").to_table()
    rows: dict[str, list[Row]] = {}
    for row in sorted(table.to_pylist(), key=lambda it: (it["broker"], it["position"])):
        rows.setdefault(row["broker"], []).append(row)
    return Done(place, rows)
