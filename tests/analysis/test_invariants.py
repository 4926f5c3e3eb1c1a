"""Every invariant holds on a real log, and catches its fault when the log is damaged."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis.faults import Mark
from brokerbed.analysis.invariants import INVARIANTS, Invariant
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames, bin_ns_of, input_of
from brokerbed.analysis.jobs.judge import judge
from brokerbed.analysis.marks import EVENTS as MARKED
from tests.analysis.damages import ACCOUNTED, FAULTS, NOT_LOST, ONCE, ORDERED, SUBSCRIBED, TABLES, Damaged, damaged
from tests.analysis.frames import Small
from tests.analysis.real import PARENTS, Real, Row

Judged = dict[str, dict[str, Invariant]]  # by damage and name


@pytest.fixture(scope="module")
def damages(real: Real) -> list[Damaged]:
    return [Damaged("nothing", real.rows, {}), *damaged(real.rows)]


@pytest.fixture(scope="module")
def judged(
    spark: SparkSession, small: Small, real: Real, damages: list[Damaged], tmp_path_factory: pytest.TempPathFactory
) -> Judged:
    """All damaged logs are judged at once, as if each were a point of a sweep."""
    folder = tmp_path_factory.mktemp("damaged")
    (run,) = real.finished.runs
    runs = tuple(replace(run, number=number, point=number) for number in range(len(damages)))
    frames = Frames(spark, replace(real.finished, runs=runs))
    more = [{"run": number, "bin_ns": bin_ns_of(run), "input": input_of(run)} for number in range(len(damages))]
    rows = [row | more[number] for number, it in enumerate(damages) for row in it.rows]
    logged = small.stored(rows, folder / "damaged.parquet")  # instead of the files
    is_of_clients = logged["broker"] == "clients"
    vars(frames).update(logged=logged, events=logged.where(~is_of_clients), clients=logged.where(is_of_clients))
    facts = Facts(frames)
    vars(facts)["marks"] = [
        Mark(*(row[name] for name in Mark._fields))
        for row in rows
        if row["event"] in MARKED  # instead of the files
    ]
    found = judge(facts)
    return {it.name: {one.name: one for one in found[number]} for number, it in enumerate(damages)}


def test_undamaged_everything_holds(judged: Judged, real: Real) -> None:
    found = judged["nothing"]
    assert tuple(found) == INVARIANTS == (NOT_LOST, ACCOUNTED, SUBSCRIBED, ORDERED, ONCE, TABLES, FAULTS)
    assert all(it.holds for it in found.values()), found
    assert found[FAULTS].as_json() == {"name": FAULTS, "holds": True, "checked": 2}
    taken = [it for it in real.rows if (it["broker"], it["event"]) == ("clients", "acknowledged")]
    audience = {"p": 1, "q": 2}  # subscribers of each
    assert found[NOT_LOST].checked == sum(audience[it["client"][0]] for it in taken)
    got = [it for it in real.rows if (it["broker"], it["event"]) == ("clients", "received")]
    assert found[ONCE].checked == sum(it["qos"] == 2 for it in got) > 20
    assert found[TABLES].checked == len(entries(real.rows)) > 5


def entries(rows: list[Row]) -> set[tuple[str, str]]:
    """Links and filters: one for each link on the way up from somebody who is subscribed at the end."""
    held: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["event"] == "started":
            held = {key: number for key, number in held.items() if key[0] != row["broker"]}
        if row["event"] in ("subscribed", "unsubscribed") and ">" not in row["client"]:
            key = row["broker"], row["client"], row["topic"]
            held[key] = held.get(key, 0) + (1 if row["event"] == "subscribed" else -1)
    found = set()
    for (broker, _, topic), number in held.items():
        while number and broker in PARENTS:
            found.add((broker, topic))
            broker = PARENTS[broker]  # noqa: PLW2901
    return found


def test_damages_break_just_their_invariants(judged: Judged, damages: list[Damaged]) -> None:
    assert len(damages) > 12
    for damage in damages:
        found = judged[damage.name]
        broken = {name: it.broken for name, it in found.items() if not it.holds}
        assert broken == {name: number for name, (number, _) in damage.broken.items()}, (damage.name, found)
        for name, (_, text) in damage.broken.items():
            assert any(text in it for it in found[name].offenders), (damage.name, found[name])
    assert {name for damage in damages for name in damage.broken} == set(INVARIANTS)
