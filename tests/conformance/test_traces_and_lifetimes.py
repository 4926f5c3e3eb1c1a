"""Recorded connectivity, recorded publications, and messages that expire, on every ground."""

from pathlib import Path

from brokerbed.log.record import Reason
from brokerbed.scenario import load
from tests.conformance.runs import Play, everything_arrived
from tests.local.lifetimes import ROUNDED_NS, ends_of
from tests.virtual.lifetimes import wrong

HEAD = """
scenario: 1
name: conform
clock: {warmup: 1s, measure: 29s, speedup: 10}
topology: {tree: explicit, parents: {top: null, left: top, right: top}}
"""
PASSES = 30  # of both traces


def test_peers_do_what_was_recorded(play: Play, tmp_path: Path) -> None:
    """In each second there are three publications; the subscriber is ON twice in three seconds, for 1 s and 0.5 s."""
    (tmp_path / "calls.csv").write_text("at_s\n0.2\n0.5\n1\n")
    (tmp_path / "tunnel.csv").write_text("duration_s,state\n1,on\n0.5,off\n0.5,on\n1,off\n")
    done = play(f"""{HEAD}
publishers: [{{id: p, broker: left, topic: t, arrivals: {{trace: calls.csv}}}}]
subscribers: [{{id: s, broker: right, topic: t, connectivity: {{trace: tunnel.csv, order: recorded}}}}]
""")
    everything_arrived(done)
    assert 3 * PASSES - 3 <= len(done.messages("published", "p")) <= 3 * PASSES + 3
    changes = 2 * PASSES // 3
    assert changes - 2 <= len(done.events("right", "disconnected", "s")) <= changes + 2
    assert done.events("right", "queued", "s")


def test_messages_expire_where_they_wait(play: Play) -> None:
    """What lives for 1 s and waits for a peer that is away for 2 s on average often dies, and everything else arrives."""
    done = play(f"""{HEAD}
service: {{link: {{mean: 100ms}}}}
publishers: [{{id: p, broker: left, topic: t, rate: 4/s, expiry: 1s, on: {{mean: 2s}}, off: {{mean: 1s}}, service: {{mean: 20ms}}}}]
subscribers: [{{id: s, broker: right, topic: t, on: {{mean: 2s}}, off: {{mean: 2s}}, session_service: {{mean: 50ms}}}}]
faults: [{{at: 10s, cut: [left, top], for: 3s}}]
""")
    (scenario,) = load(done.folder / "scenario.yaml").points
    ends = ends_of(done.folder)
    assert list(wrong(scenario, ends, ROUNDED_NS)) == []
    assert set(ends.dies_ns) == set(ends.published)
    died = [drop.subject for drops in ends.dropped.values() for drop in drops if drop.reason == Reason.EXPIRED]
    assert {"p", "left>top", "s"} <= set(died)
    assert len(ends.processed_ns) > 20
