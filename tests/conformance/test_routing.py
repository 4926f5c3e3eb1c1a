"""The routing algorithms that cover, merge, speak downward or advertise, on every ground: brokers that crash, links that
are cut and a refresh leave the right entries behind, and everything arrives."""

from collections import Counter
from pathlib import Path

import pytest

from brokerbed.analysis.right_tables import Held, RightTables
from brokerbed.scenario import ALGORITHMS, topology
from brokerbed.topics import ADVERTISE
from tests.conformance.runs import Done, everything_arrived
from tests.conformance.runs import play as play_on
from tests.conformance.test_grounds import PAIR, tree
from tests.conformance.test_overlaps import distribute

PARENTS = {"top": None, "left": "top", "right": "top", "low": "right"}
CHURN = """
refresh: 8s
classes: {count: 12, groups: 3}
subscriptions: {mean_active: 24, lifetime: {mean: 2s}, wide: {mean_active: 3}, qos: 1}
publications: {rate: 20/s, qos: 1, sources: {on: {mean: 2s}, off: {mean: 2s}}}
faults: [{at: 4s, crash: right, for: 3s}, {at: 9s, cut: [left, top], for: 3s}, {at: 14s, crash: top, for: 2s}]
"""
SIGNS = {"subscribed": 1, "unsubscribed": -1, "advertised": 1, "unadvertised": -1}


def at_end(done: Done) -> tuple[Held, dict[str, Counter[str]], dict[str, Counter[str]]]:
    """What brokers hold for their neighbours, and what their clients subscribe to and advertise, by broker.

    A broker that starts logs what it has restored, so only what follows its last start counts.
    """
    held: Held = {}
    wanted, advertised = ({name: Counter[str]() for name in PARENTS} for _ in range(2))
    for broker in PARENTS:
        rows = done.rows[broker]
        start = max(position for position, row in enumerate(rows) if row["event"] == "started")
        for row in rows[start:]:
            sign = SIGNS.get(row["event"], 0)
            if not sign:
                continue
            is_advertised = "advertised" in row["event"]
            if row["client"].startswith(f"{broker}>"):
                pattern = ADVERTISE * is_advertised + row["topic"]
                entries = held.setdefault((broker, row["client"]), {})
                entries[pattern] = entries.get(pattern, 0) + sign
            else:
                (advertised if is_advertised else wanted)[broker][row["topic"]] += sign
    return held, wanted, advertised


def some(counts: dict[str, int]) -> dict[str, int]:
    return {pattern: count for pattern, count in counts.items() if count}


@pytest.mark.parametrize(
    ("ground", "routing"),
    distribute([("covering",), ("merging",), ("peer",), ("peer-advertisement",), ("advertisement",)]),
)
def test_entries_are_right_after_crashes_and_a_cut(ground: str, routing: str, tmp_path: Path) -> None:
    done = play_on(ground, tmp_path, tree("20s", 2) + PAIR + CHURN + f"routing: {routing}\n")
    everything_arrived(done)
    for broker, starts in (("right", 2), ("top", 2), ("left", 1)):
        assert len(done.events(broker, "started")) == starts
    assert any(row["event"] == "link_resync" for rows in done.rows.values() for row in rows)
    assert any(row["event"] == "link_refresh" for rows in done.rows.values() for row in rows)
    held, wanted, advertised = at_end(done)
    assert sum(wanted["low"].values()) >= 1
    algorithm = ALGORITHMS[routing]
    local = [{broker: some(counts) for broker, counts in of.items()} for of in (wanted, advertised)]
    right = RightTables(topology.explicit(PARENTS), algorithm, algorithm.checked({}), *local).held()
    found = {place: entries for place, counts in held.items() if (entries := some(counts))}
    assert found == {place: entries for place, entries in right.items() if entries}
