"""The way of one message through the network, hop by hop, from the log alone. Needs no Spark: it is one look-up."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from brokerbed.analysis.errors import RunError
from brokerbed.log.record import CLIENTS, Reason

NAMES_SHOWN_MAX = 5  # of publishers in an error message
Key = tuple[str, bool, str]  # an event, whether the testbed's clients noted it, and the client or link


@dataclass(frozen=True, slots=True)
class Step:
    time_ns: int
    broker: str
    event: str
    client: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        return {"time_ns": self.time_ns, "broker": self.broker, "event": self.event, "client": self.client,
                "reason": self.reason}  # fmt: skip


def trace(folder: Path, message: str) -> list[Step]:
    """All that was noted of a message: NAME.NUMBER, of its publisher or of the broker where it entered."""
    name, _, number = message.rpartition(".")
    if not name or not number.isdigit():
        raise RunError(
            f"{message}: a message is called by its publisher and number, as sensor.17, or as in the log, b3.1.17"
        )
    log = folder / "log"
    if not log.is_dir():
        raise RunError(f"{folder}: this is not the directory of one run (it has no log); give its points/N or seeds/N")
    dataset = ds.dataset(log, format="parquet", partitioning="hive")
    try:
        rows = list(_rows(dataset, name, int(number)))
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{log}: the message log cannot be read ({' '.join(str(error).split())[:200]})") from None
    if not rows:
        raise RunError(f"{message}: there is no such message in {log}; {_hint(dataset, name, int(number))}")
    return [
        Step(
            row["time_ns"],
            row["broker"],
            row["event"],
            row["client"] or "",
            Reason(row["reason"]).name.lower() if row["event"] == "dropped" else "",
        )
        for row in _in_causal_order(rows)
    ]


def _hint(dataset: ds.Dataset, name: str, number: int) -> str:
    """Which messages there are, for who has asked for one that there is not."""
    is_published = (pc.field("broker") == CLIENTS) & (pc.field("event") == "published")
    published = dataset.to_table(columns=["origin", "sequence"], filter=is_published)
    table = published.group_by("origin").aggregate([("sequence", "min"), ("sequence", "max")])
    numbers = {row["origin"]: (row["sequence_min"], row["sequence_max"]) for row in table.to_pylist()}
    publishers = sorted(numbers, key=lambda it: (len(it), it))  # sensor.9 before sensor.10
    if name in numbers:
        return "{} published {} to {}".format(name, *numbers[name])
    if copies := [it for it in publishers if it.rpartition(".")[0] == name]:
        copy = next((it for it in copies if number <= numbers[it][1]), None)
        return f"{name} has copies" + (f": did you mean {copy}.{number}?" if copy else f", {copies[0]} to {copies[-1]}")
    if len(publishers) > NAMES_SHOWN_MAX:
        publishers = [*publishers[: NAMES_SHOWN_MAX - 1], "...", publishers[-1]]
    return f"publishers are {', '.join(publishers)}" if publishers else "it has no publishers"


def _in_causal_order(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """By time, and of one moment each step after what led to it: every log is in order, and so is what passes between
    two of them."""
    logs: dict[str, deque[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda it: it["position"]):
        logs.setdefault(row["broker"], deque()).append(row)
    ranks = _ranks(rows)
    to_come = Counter(_key(row) for row in rows)
    seen: set[Key] = set()
    while logs:
        heads = [log[0] for log in logs.values()]
        ready = [it for it in heads if (cause := _cause(it)) is None or cause in seen or not to_come[cause]]
        row = min(ready or heads, key=lambda it: (it["time_ns"], ranks.get(it["broker"], len(ranks))))
        log = logs[row["broker"]]
        log.popleft()
        if not log:
            del logs[row["broker"]]
        seen.add(_key(row))
        yield row


def _is_clients(row: dict[str, Any]) -> bool:
    return bool(row["broker"] == CLIENTS)


def _key(row: dict[str, Any]) -> Key:
    return row["event"], _is_clients(row), row["client"] or ""


def _cause(row: dict[str, Any]) -> Key | None:
    """What the other side must have done before."""
    event = {"received": "sent", "acknowledged": "received"}.get(row["event"])
    if event is None:
        return None
    client = row["client"] or ""
    if ">" in client:
        return event, False, ">".join(reversed(client.split(">")))
    return event, not _is_clients(row), client


def _ranks(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Where the message was, in the order of its way: steps at one moment are told so."""
    order = [CLIENTS]
    entered = [it["broker"] for it in rows if it["event"] == "received" and ">" not in (it["client"] or "")]
    order += [it for it in entered if it != CLIENTS]
    for place in order:
        sent = (it["client"] or "" for it in rows if it["broker"] == place and it["event"] in ("queued", "sent"))
        reached = (client.split(">")[1] for client in sent if ">" in client)
        order += [broker for broker in dict.fromkeys(reached) if broker not in order]
    return {place: rank for rank, place in enumerate(dict.fromkeys(order))}


def _rows(dataset: ds.Dataset, name: str, number: int) -> Iterator[dict[str, Any]]:
    """By the publisher's name first: its identity at brokers is in the row with which it entered."""
    identities = {(name, number)}
    entered = (pc.field("event") == "identified") & (pc.field("number") == number) & (pc.field("client") == name)
    known = dataset.to_table(columns=["origin", "sequence"], filter=entered)
    identities.update((row["origin"], row["sequence"]) for row in known.to_pylist())
    by_broker = (pc.field("event") == "identified") & (pc.field("sequence") == number) & (pc.field("origin") == name)
    known = dataset.to_table(columns=["client", "number"], filter=by_broker)
    identities.update((row["client"], row["number"]) for row in known.to_pylist())
    columns = ["time_ns", "position", "broker", "event", "client", "reason"]
    for origin, sequence in sorted(identities):
        is_it = (
            (pc.field("origin") == origin) & (pc.field("sequence") == sequence) & (pc.field("event") != "identified")
        )
        yield from dataset.to_table(columns=columns, filter=is_it).to_pylist()
