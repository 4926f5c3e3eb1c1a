"""Requests and answers in the log: a killed broker costs none of them, and what is missing is found."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis import checks
from brokerbed.analysis.invariants import ACCOUNTED, Judged
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.judge import judge
from brokerbed.analysis.jobs.measure import cells, measure
from brokerbed.analysis.runs import find
from brokerbed.analysis.trace import trace
from brokerbed.analysis.transforms.exchanges import answered_cells, exchanges, round_trip_cells
from brokerbed.analysis.transforms.passages import passages
from tests.analysis.frames import LONG_AGO_S, Small
from tests.analysis.frames import cells as plain_cells
from tests.analysis.real import simulate
from tests.analysis.requests import REQUESTERS, struck

ROLES = "run int, requester string, responder string, copy int, origin string, client string, role string"
EXCHANGE = 0, "q", "r", 0


def client(seconds: float, event: str, who: str, origin: str, number: int) -> tuple[Any, ...]:
    return seconds, "clients", event, who, {"origin": origin, "sequence": number, "topic": "t", "qos": 1}


def steps(number: int, *seconds: float) -> Iterator[tuple[Any, ...]]:
    """The steps of a request, as far as there are times for them."""
    names = (
        ("published", "q", "q"), ("received", "r", "q"), ("processed", "r", "q"), ("published", "r/q", "r/q"),
        ("received", "q", "r/q"), ("processed", "q", "r/q"),
    )  # fmt: skip
    for time_s, (event, who, origin) in zip(seconds, names, strict=False):
        yield client(time_s, event, who, origin, number)


@pytest.fixture(scope="module", params=[1, 2])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """At QoS 1 and 2."""
    return request.param, simulate(tmp_path_factory.mktemp("struck"), struck(20, 0.5, request.param))


@pytest.fixture(scope="module")
def log(run: tuple[int, Path]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(run[1] / "log/broker=clients/events.parquet").read().to_pylist()
    return rows


def test_every_request_is_answered_although_a_broker_is_killed(
    run: tuple[int, Path], log: list[dict[str, Any]]
) -> None:
    asked = {
        (row["origin"], row["sequence"]) for row in log if row["event"] == "published" and "/" not in row["origin"]
    }
    assert len({name for name, _ in asked}) == REQUESTERS
    answers = Counter(
        (row["client"], row["sequence"]) for row in log if row["event"] == "received" and "/" in row["origin"]
    )
    assert answers.keys() == asked
    assert sum(row["event"] == "fault_confirmed" for row in log) == 1
    replies = Counter((row["origin"], row["sequence"]) for row in log if row["event"] == "published")
    if run[0] == 2:
        assert set(answers.values()) == set(replies.values()) == {1}


def test_analysis_of_the_run_agrees(run: tuple[int, Path], spark: SparkSession) -> None:
    facts = Facts(Frames(spark, find(run[1])))
    (invariants,) = judge(facts).values()
    assert [(it.name, it.offenders) for it in invariants if not it.holds] == []
    measured = measure(facts, cells(facts))
    shares = {labels: row.value for (_, metric, labels), row in measured.items() if metric == "delivery.answered"}
    assert len(shares) == REQUESTERS
    assert set(shares.values()) == {1.0}
    assert sum(metric == "delay.round_trip" for _, metric, _ in measured) == REQUESTERS


def test_trace_follows_an_answer(run: tuple[int, Path]) -> None:
    """q0 at b3 asks r0 at b4, one broker away from it."""
    names = [(step.broker, step.event, step.client) for step in trace(run[1], "r0/q0.1")]
    first, last = names[0], [it for it in names if it[0] == "clients"][-1]
    assert first == ("clients", "published", "r0/q0")
    assert ("b4", "received", "r0") in names
    assert ("b3", "sent", "q0") in names
    assert last[1:] in {("processed", "q0"), ("acknowledged", "r0/q0")}


def test_exchanges(small: Small) -> None:
    """Request 1 is made at 11, served at 13 and answered at 15: 4 s. Request 2 is made at 12 and answered at 22: 10 s in
    batch 1. Request 3 is at the responder, 4 was served and not answered, 5 was answered with other Correlation Data."""
    rows = [
        *steps(1, 11, 12, 13, 13, 14, 15), *steps(2, 12, 13, 14, 14, 21, 22), *steps(3, 15, 16), *steps(4, 23, 24, 25),
        *steps(5, 24, 25, 26, 26, 27),
    ]  # fmt: skip
    roles = small.table(
        ROLES, (*EXCHANGE, "q", "q", "asked"), (*EXCHANGE, "q", "r", "served"), (*EXCHANGE, "r/q", "r/q", "replied"),
        (*EXCHANGE, "r/q", "q", "answered"),
    )  # fmt: skip
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0), (20, 30, 1))
    found = exchanges(passages(small.events(*rows)), roles)
    trip, answered = ("delay.round_trip", "q", "r"), ("delivery.answered", "q", "r")
    assert plain_cells(round_trip_cells(found, times)) == {(*trip, "0/0"): (4.0, 1.0), (*trip, "0/1"): (10.0, 1.0)}
    assert plain_cells(answered_cells(found, times)) == {(*answered, "0/0"): (2.0, 3.0), (*answered, "0/1"): (0.0, 2.0)}
    judged = [Judged(*row) for row in checks.requests_answered(found).select(*Judged._fields).collect()]
    assert {row.name for row in judged} == {ACCOUNTED}
    assert sum(row.checked for row in judged) == 4
    assert sorted(row.text for row in judged if row.broken) == [
        "q 4 at r: served, and not answered",
        "q 5 at r: answered, but not taken for an answer",
    ]
