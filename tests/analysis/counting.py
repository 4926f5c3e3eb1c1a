"""The metric table of the design, counted over the plain rows of one log: no Spark, nothing of the transforms.

It knows the run of real.py: two copies of each peer (p.0, p.1, ...), service everywhere, everything drained.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

import numpy as np

from brokerbed.analysis.windows import Interval
from tests.analysis.real import LINKS, Row

AGAIN, ADDITIONAL, REPLAY = 2, 4, 8  # flags, as docs/runs.md has them
AUDIENCES = {"p": ("s",), "q": ("r", "z")}
SESSIONS = ("s", "z")  # peers for which brokers keep a queue that takes time
Key = tuple[str, ...]  # the metric and the values of its labels


class Count:
    def __init__(self, rows: Iterable[Row], compared: Iterable[Interval]) -> None:
        self.compared = [it for it in compared if it.batch >= 0]
        self.seconds = sum(it.end_ns - it.begin_ns for it in self.compared) / 1e9
        self.of_brokers: dict[str, list[Row]] = defaultdict(list)
        self.of_clients: list[Row] = []
        for row in rows:
            (self.of_clients if row["broker"] == "clients" else self.of_brokers[row["broker"]]).append(row)
        for its in self.of_brokers.values():
            its.sort(key=lambda row: row["position"])

    def is_compared(self, time_ns: int) -> bool:
        return any(it.begin_ns <= time_ns < it.end_ns for it in self.compared)

    def all(self) -> dict[Key, float]:
        return self.rates() | self.tables() | self.clients() | self.queues() | self.deliveries()

    # -- links ------------------------------------------------------------------------------------------------

    def crossings(self) -> list[tuple[Row, str]]:
        """What crossed links in compared time, and whether it is a notification or control."""
        found = []
        for rows in self.of_brokers.values():
            for row in rows:
                if row["client"] not in LINKS or not self.is_compared(row["time_ns"]):
                    continue
                if row["event"] == "sent" and not row["flags"] & AGAIN and not row["flags"] & REPLAY:
                    found.append((row, "notifications"))
                elif row["event"] in ("link_subscribe", "link_unsubscribe", "link_refresh"):
                    found.append((row, "control"))
        return found

    def rates(self) -> dict[Key, float]:
        counts: dict[Key, int] = {(f"rate.{kind}", link): 0 for kind in ("notifications", "control") for link in LINKS}
        totals = dict.fromkeys(("notifications", "notifications.additional", "control", "total", "delivered"), 0)
        for row, kind in self.crossings():
            counts[f"rate.{kind}", row["client"]] += 1
            totals[kind] += 1
            totals["total"] += 1
            if kind == "notifications" and row["flags"] & ADDITIONAL:
                totals["notifications.additional"] += 1
        for broker, rows in self.of_brokers.items():
            received = [row for row in rows if row["event"] == "received" and self.is_compared(row["time_ns"])]
            counts["rate.received", broker] = len(received)
            totals["delivered"] += sum(
                row["event"] == "sent" and row["client"] not in LINKS and not row["flags"] & AGAIN
                for row in rows
                if self.is_compared(row["time_ns"])
            )
        counts |= {(f"rate.{kind}",): number for kind, number in totals.items()}
        return {key: number / self.seconds for key, number in counts.items()}

    # -- tables -----------------------------------------------------------------------------------------------

    def tables(self) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for metric, is_remote in (("table.remote_entries", True), ("table.local_entries", False)):
            for broker, rows in self.of_brokers.items():
                found[metric, broker] = self._mean_size(rows, is_remote)
            found[(metric,)] = sum(found[metric, broker] for broker in self.of_brokers)
        return found

    def _mean_size(self, rows: list[Row], is_remote: bool) -> float:
        """The size is a step function: the area under it in compared time, over that time."""
        steps: list[tuple[int, int]] = []  # from when on, how many
        held: dict[tuple[str, str], int] = defaultdict(int)
        for row in rows:
            if row["event"] == "started":
                held.clear()
            elif row["event"] in ("subscribed", "unsubscribed") and (">" in row["client"]) == is_remote:
                held[row["client"], row["topic"]] += 1 if row["event"] == "subscribed" else -1
            else:
                continue
            assert all(it >= 0 for it in held.values())
            steps.append((row["time_ns"], sum(held.values())))
        area = 0
        for it in self.compared:
            at_ns, size = it.begin_ns, 0
            for time_ns, then in steps:
                if time_ns >= it.end_ns:
                    break
                if time_ns > at_ns:
                    area += size * (time_ns - at_ns)
                    at_ns = time_ns
                size = then
            area += size * (it.end_ns - at_ns)
        return area / 1e9 / self.seconds

    # -- delays -----------------------------------------------------------------------------------------------

    def _first(self, event: str, client: str, publisher: str) -> dict[int, int]:
        """When it was first so of each message of a publisher."""
        found: dict[int, int] = {}
        for row in self.of_clients:
            if (row["event"], row["client"], row["origin"]) == (event, client, publisher):
                found[row["sequence"]] = min(row["time_ns"], found.get(row["sequence"], row["time_ns"]))
        return found

    def _spans(self, begun: dict[int, int], ended: dict[int, int]) -> list[float]:
        """In seconds, of those that ended in compared time."""
        return [(end - begun[it]) / 1e9 for it, end in ended.items() if self.is_compared(end)]

    def clients(self) -> dict[Key, float]:
        spans: dict[Key, list[float]] = defaultdict(list)
        for publisher, audience in AUDIENCES.items():
            for copy in (0, 1):
                its = f"{publisher}.{copy}"
                made, sent = self._first("published", its, its), self._first("sent", its, its)
                spans["delay.stage", "publisher", publisher] += self._spans(made, sent)
                for subscriber in audience:
                    got = self._first("received", f"{subscriber}.{copy}", its)
                    done = self._first("processed", f"{subscriber}.{copy}", its)
                    spans["delay.end_to_end", publisher, subscriber] += self._spans(made, done)
                    spans["delay.stage", "subscriber", subscriber] += self._spans(got, done)
        quantiles = {
            (f"{name}.p{percent}", *pair): float(np.quantile(its, percent / 100))
            for (name, *pair), its in spans.items()
            if name == "delay.end_to_end"
            for percent in (50, 95, 99)
        }
        return {key: fmean(its) for key, its in spans.items()} | quantiles

    def queues(self) -> dict[Key, float]:
        """At brokers: in the input from receipt to the end of service, in an output from routing to sending."""
        spans: dict[Key, list[float]] = defaultdict(list)
        for broker, rows in self.of_brokers.items():
            came: dict[tuple[str, int], int] = {}
            routed: dict[tuple[str, str, int], int] = {}
            seen: set[tuple[str, str, int]] = set()
            for row in rows:
                message, time_ns, client = (row["origin"], row["sequence"]), row["time_ns"], row["client"] or ""
                delay_of: tuple[Key, int] | None = None
                if row["event"] == "received":
                    came.setdefault(message, time_ns)
                elif row["event"] == "served" and ("served", *message) not in seen:
                    seen.add(("served", *message))
                    delay_of = ("delay.stage", "broker_in", broker), came[message]
                elif row["event"] in ("queued", "sent"):
                    since = routed.setdefault((client, *message), time_ns)
                    if row["event"] == "sent" and (client, *message) not in seen:
                        seen.add((client, *message))
                        place = _place(client)
                        delay_of = (place, since) if place else None
                if delay_of is not None and self.is_compared(time_ns):
                    spans[delay_of[0]].append((time_ns - delay_of[1]) / 1e9)
        return {key: fmean(its) for key, its in spans.items()}

    # -- deliveries -------------------------------------------------------------------------------------------

    def deliveries(self) -> dict[Key, float]:
        """Everything was drained: what did not arrive was dropped."""
        found: dict[Key, float] = {}
        for publisher, audience in AUDIENCES.items():
            for subscriber in audience:
                due = there = 0
                for copy in (0, 1):
                    its = f"{publisher}.{copy}"
                    got = self._first("received", f"{subscriber}.{copy}", its)
                    for number, time_ns in self._first("published", its, its).items():
                        due += self.is_compared(time_ns)
                        there += self.is_compared(time_ns) and number in got
                found["delivery.ratio", publisher, subscriber] = there / due
        return found


def _place(client: str) -> Key | None:
    if client in LINKS:
        return "delay.stage", "link", client
    peer = client.split(".")[0]
    return ("delay.stage", "session", peer) if peer in SESSIONS else None
