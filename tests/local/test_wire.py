"""What crosses the links of running brokers, counted outside of them: the short version of `python -m tests.local.wire`."""

from pathlib import Path

import pyarrow.parquet as pq

from brokerbed.analysis.predict import predict
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load
from tests.local.wire import counted, counting

FIXED = """
scenario: 1
name: fixed
clock: {measure: 3s}
topology: {tree: regular, arity: 2, depth: 3}
routing: peer
publishers:
  - {id: leaf, broker: b3, topic: from/leaf, rate: 40/s}
  - {id: root, broker: b0, topic: from/root, rate: 40/s}
subscribers:
  - {id: beside, broker: b4, topic: from/leaf}
  - {id: far, broker: b5, topic: from/+}
durability: memory
"""
NARROW = """
scenario: 1
name: narrow
clock: {measure: 6s}
topology: {tree: line, brokers: 3}
routing: advertisement
spreading: {coefficient: 0.9, rate: 150/s, types: 8, redraw: 1s, qos: 1}
links: [{between: [b0, b1], bandwidth: 1Mbit/s}, {between: [b1, b2], bandwidth: 1Mbit/s}]
durability: memory
"""
MEASURED_S, BANDWIDTH = 6, 1_000_000
LINKS = {"leaf": 5, "root": 2}  # b3-b1-b4, b1-b0-b2-b5; b0-b2-b5


def test_peer_routing_uses_the_smallest_subtree_on_the_wire(tmp_path: Path) -> None:
    count = counted(FIXED, tmp_path).count
    (log,) = (tmp_path / "runs").glob("fixed-*/log")
    events = pq.read_table(log).to_pylist()
    published = [row["client"] for row in events if row["event"] == "published"]
    assert len(published) > 100
    assert count == sum(LINKS[client] for client in published)


def test_bytes_on_the_wire_are_those_that_were_predicted(tmp_path: Path) -> None:
    """Notifications and their acknowledgements, and the control packets at each redraw; links are set up before that.

    How many notifications cross is random, so the packets that the proxy counts stand in for their expected number.
    """
    (tmp_path / "narrow.yaml").write_text(NARROW)
    experiment = load(tmp_path / "narrow.yaml")
    with counting() as relays:
        run(experiment, "local", None, 1, tmp_path / "runs", lambda _: None)
    seen = [way for relay in relays for way in relay.ways_seen]
    rows = predict(experiment.points[0]).rows
    predicted = {(row.metric, *row.labels.values()): row.predicted or 0.0 for row in rows}
    used = [value for (metric, *_), value in predicted.items() if metric == "link.utilisation"]
    assert len(used) == 4
    expected_bytes = sum(used) * MEASURED_S * BANDWIDTH / 8
    expected_count = predicted["rate.notifications",] * MEASURED_S
    count = sum(way.count for way in seen)
    assert abs(count / expected_count - 1) < 0.1
    assert abs(sum(way.size_bytes for way in seen) / (expected_bytes * count / expected_count) - 1) < 0.02
    (log,) = (tmp_path / "runs").glob("narrow-*/log")
    logged = sum(row["size"] for row in pq.read_table(log).to_pylist() if row["event"] == "link_bytes")
    assert abs(logged / sum(way.size_bytes for way in seen) - 1) < 0.02
