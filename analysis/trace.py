"""Follows one message through the network, hop by hop, in the log. It needs no Spark."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from brokerbed.analysis.errors import RunError
from brokerbed.log.record import CLIENTS, WAITED, Reason

NAMES_SHOWN_MAX = 5  # publishers that an error message lists
Key = tuple[str, bool, str]  # event, whether the testbed's clients logged it, client or link


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
    """All steps of the message NAME.NUMBER; NAME is its publisher, or its origin in the log."""
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
    """Advice for a user who asked for a message that does not exist."""
    is_published = (pc.field("broker") == CLIENTS) & (pc.field("event") == "published")
    published = dataset.to_table(columns=["origin", "sequence"], filter=is_published)
    table = published.group_by("origin").aggregate([("sequence", "min"), ("sequence", "max")])
    numbers = {row["origin"]: (row["sequence_min"], row["sequence_max"]) for row in table.to_pylist()}
    publishers = sorted(numbers, key=lambda publisher: (len(publisher), publisher))  # sensor.9 before sensor.10
    if name in numbers:
        return "{} published {} to {}".format(name, *numbers[name])
    if copies := [publisher for publisher in publishers if publisher.rpartition(".")[0] == name]:
        copy = next((publisher for publisher in copies if number <= numbers[publisher][1]), None)
        return f"{name} has copies" + (f": did you mean {copy}.{number}?" if copy else f", {copies[0]} to {copies[-1]}")
    if len(publishers) > NAMES_SHOWN_MAX:
        publishers = [*publishers[: NAMES_SHOWN_MAX - 1], "...", publishers[-1]]
    return f"publishers are {', '.join(publishers)}" if publishers else "it has no publishers"


def _in_causal_order(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows by time; those of the same moment follow their causes.

    Every log is in order, and so are the messages that pass between two of them.
    """
    logs: dict[str, deque[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["position"]):
        logs.setdefault(row["broker"], deque()).append(row)
    ranks = _ranks(rows)
    to_come = Counter(_key(row) for row in rows)
    seen: set[Key] = set()
    while logs:
        heads = [log[0] for log in logs.values()]
        ready = [head for head in heads if (cause := _cause(head)) is None or cause in seen or not to_come[cause]]
        row = min(ready or heads, key=lambda head: (head["time_ns"], ranks.get(head["broker"], len(ranks))))
        log = logs[row["broker"]]
        log.popleft()
        if not log:
            del logs[row["broker"]]
        seen.add(_key(row))
        yield row


def _is_clients(row: dict[str, Any]) -> bool:
    return bool(row["broker"] == CLIENTS)


def _key(row: dict[str, Any]) -> Key:
    if row["event"] == "moved":
        return "moved", False, _client(row).rpartition(">")[2]  # the broker to which it came
    return row["event"], _is_clients(row), _client(row)


def _client(row: dict[str, Any]) -> str:
    """The client or link. The answers of r to q are r/q in the log of clients, which are sent by the client r."""
    client: str = row["client"] or ""
    return client.partition("/")[0]


def _cause(row: dict[str, Any]) -> Key | None:
    """What the other side must have done before this step."""
    if row["event"] == "queued" and row["flags"] & WAITED:  # it came with the session of the client
        return "moved", False, row["broker"]
    event = {"received": "sent", "acknowledged": "received"}.get(row["event"])
    if event is None:
        return None
    client = _client(row)
    if ">" in client:
        return event, False, ">".join(reversed(client.split(">")))
    return event, not _is_clients(row), client


def _ranks(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The rank of each broker on the path of the message, by which steps at the same moment are sorted."""
    order = [CLIENTS]
    entered = [row["broker"] for row in rows if row["event"] == "received" and ">" not in (row["client"] or "")]
    order += [broker for broker in entered if broker != CLIENTS]
    for place in order:
        sent = (
            row["client"] or ""
            for row in rows
            if row["broker"] == place and row["event"] in ("queued", "sent", "moved")
        )
        reached = (client.split(">")[1] for client in sent if ">" in client)
        order += [broker for broker in dict.fromkeys(reached) if broker not in order]
    return {place: rank for rank, place in enumerate(dict.fromkeys(order))}


def _rows(dataset: ds.Dataset, name: str, number: int) -> Iterator[dict[str, Any]]:
    """All rows of a message. Brokers know it by another identity, which the row `identified` tells."""
    identities = {(name, number)}
    entered = (pc.field("event") == "identified") & (pc.field("number") == number) & (pc.field("client") == name)
    table = dataset.to_table(columns=["origin", "sequence"], filter=entered)
    identities.update((row["origin"], row["sequence"]) for row in table.to_pylist())
    by_broker = (pc.field("event") == "identified") & (pc.field("sequence") == number) & (pc.field("origin") == name)
    table = dataset.to_table(columns=["client", "number"], filter=by_broker)
    identities.update((row["client"], row["number"]) for row in table.to_pylist())
    columns = ["time_ns", "position", "broker", "event", "client", "reason", "flags"]
    for origin, sequence in sorted(identities):
        is_step = ~pc.field("event").isin(["identified", "expires"])  # the time of `expires` is still to come
        is_of_message = (pc.field("origin") == origin) & (pc.field("sequence") == sequence) & is_step
        yield from dataset.to_table(columns=columns, filter=is_of_message).to_pylist()
