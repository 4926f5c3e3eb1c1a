"""`predict` of scenario files with groups, places, wide subscriptions and sources, against a count by definition."""

import random
from dataclasses import replace

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.scenario import ALGORITHMS
from tests.conftest import FromText
from tests.unit.analysis.brute_force import BruteForce, Churn, Counts, Network, Source

SCENARIOS = 40
GROUPS, CLASSES = 2, 5  # group 0 has the classes 0, 2 and 4
LIFETIME_S, ON_S, OFF_S = 4.0, 3.0, 5.0
ROUTINGS = [name for name in ALGORITHMS.built_in if name != "simple"]


def name_of(topic: str) -> str:
    """The topics of the count are short: its universe is small."""
    return {"group/0000/0000": "g0/a", "group/0000/0002": "g0/b", "group/0000/0004": "g0/c", "group/0000/+": "g0/+",
            "group/0001/0001": "g1/a", "group/0001/0003": "g1/b", "group/0001/+": "g1/+"}.get(topic, topic)  # fmt: skip


def topic_of(number: int) -> str:
    return name_of(f"group/{number % GROUPS:04d}/{number:04d}")


def draw_scenario(seed: int) -> tuple[str, Network]:
    """The text of a scenario without its routing, and the same for the count."""
    draw = random.Random(seed)
    size = draw.randint(2, 8)
    parents = [-1, *(draw.randrange(broker) for broker in range(1, size))]
    network = Network(parents)
    lines = ["topology:", "  tree: explicit", "  parents:", "    b0: null"]
    lines += [f"    b{broker}: b{parent}" for broker, parent in enumerate(parents) if parent >= 0]
    lines += [f"classes: {{count: {CLASSES}, groups: {GROUPS}}}"]
    wide, place = draw.uniform(0.2, 3), draw.randrange(size)
    lines += ["subscriptions:", f"  lifetime: {{mean: {LIFETIME_S}s}}", f"  where: [b{place}]"]
    lines += [f"  wide: {{mean_active: {wide}}}", "  at:"]
    for group in range(GROUPS):
        active = wide / GROUPS
        network.churns.append(Churn(place, name_of(f"group/{group:04d}/+"), active / LIFETIME_S, active))
    for broker, number in sorted({(draw.randrange(size), draw.randrange(CLASSES)) for _ in range(4)}):
        rate = draw.uniform(0.01, 0.6)
        lines.append(f"  - {{broker: b{broker}, class: {number}, arrival_rate: {rate}/s}}")
        network.churns.append(Churn(broker, topic_of(number), rate, rate * LIFETIME_S))
    is_switched = draw.random() < 0.5
    lines += [
        "publications:",
        f"  sources: {{on: {{mean: {ON_S}s}}, off: {{mean: {OFF_S}s}}}}" if is_switched else "  qos: 0",
    ]
    lines += ["  at:"]
    for broker, number in sorted({(draw.randrange(size), draw.randrange(CLASSES)) for _ in range(2)}):
        rate = draw.uniform(0.1, 5)
        lines.append(f"  - {{broker: b{broker}, class: {number}, rate: {rate}/s}}")
        network.sources.append(Source(broker, topic_of(number), rate, (ON_S, OFF_S) if is_switched else None))
    if draw.random() < 0.4:
        broker, topic = draw.randrange(size), draw.choice(["#", "group/0000/+", "group/0001/0003", "t"])
        lines.append(f"subscribers: [{{id: s, broker: b{broker}, topic: '{topic}'}}]")
        network.permanent.append((broker, name_of(topic)))
    if draw.random() < 0.4:
        broker, topic = draw.randrange(size), draw.choice(["t", "group/0001/0003"])
        lines.append(f"publishers: [{{id: p, broker: b{broker}, topic: {topic}, rate: 2/s}}]")
        network.sources.append(Source(broker, name_of(topic), 2.0))
    return "\n".join(lines) + "\n", network


def expected_rows(counts: Counts, network: Network, routing: str) -> dict[str, float]:
    totals = {name: sum(values.values()) for name, values in vars(counts).items()}
    rows = {
        "table.remote_entries": totals["entries_up"] + totals["entries_down"],
        "table.local_entries": sum(churn.mean_active for churn in network.churns) + len(network.permanent),
        "rate.notifications": totals["up"] + totals["down"],
        "rate.notifications.additional": totals["additional"],
        "rate.control": totals["control_up"] + totals["control_down"],
    }
    rows["rate.total"] = rows["rate.notifications"] + rows["rate.control"]
    if "advertisement" in routing:
        rows["table.advertisements"] = totals["advertisements_up"] + totals["advertisements_down"]
    if routing == "merging":
        rows["rate.notifications.unwanted"] = totals["unwanted"]
    return rows


@pytest.mark.parametrize("routing", ROUTINGS)
def test_predictions_equal_the_count_by_definition(routing: str, from_text: FromText) -> None:
    for seed in range(SCENARIOS):
        text, network = draw_scenario(seed)
        threshold = 2 + seed % 2
        form = f"{{algorithm: {routing}, threshold: {threshold}}}" if routing == "merging" else routing
        head = f"scenario: 1\nname: x\nclock: {{measure: 1s}}\nrouting: {form}\n"
        (scenario,) = from_text(head + text).points
        counts = BruteForce(network, routing, threshold).counts()
        found = {row.metric: row.predicted for row in predict(scenario, detail=False).rows if not row.labels}
        assert found == pytest.approx(expected_rows(counts, network, routing), rel=1e-9, abs=1e-12), seed


def test_refresh_repeats_all_entries_and_advertisements(from_text: FromText) -> None:
    text, _ = draw_scenario(1)
    for routing in ROUTINGS:
        rows = []
        for refresh in ("", "refresh: 2s\n"):
            head = f"scenario: 1\nname: x\nclock: {{measure: 1s}}\nrouting: {routing}\n{refresh}"
            (scenario,) = from_text(head + text).points
            rows.append({row.metric: row.predicted or 0.0 for row in predict(scenario, detail=False).rows})
        stored = rows[0]["table.remote_entries"] + rows[0].get("table.advertisements", 0.0)
        assert rows[1]["rate.control"] - rows[0]["rate.control"] == pytest.approx(stored / 2), routing


def test_merging_that_is_not_predicted_says_so(from_text: FromText) -> None:
    """A filter that covers some filters of a group, and filters with wildcards that are merged themselves."""
    head = (
        "scenario: 1\nname: x\nclock: {measure: 1s}\nrouting: merging\nclasses: 9\ntopology: {tree: line, brokers: 3}\n"
    )
    for topics, note in (
        (["+/0003"], "merging where a filter covers some filters of a group, but not all of them"),
        (["+/x", "+/y"], "merging of filters that have wildcards before the last level"),
    ):
        peers = ", ".join(f"{{id: s{at}, broker: b2, topic: {topic}}}" for at, topic in enumerate(topics))
        (scenario,) = from_text(f"{head}subscribers: [{peers}]\npublications: {{rate: 1/s}}\n").points
        prediction = predict(scenario)
        assert [row.predicted for row in prediction.rows] == [None] * len(prediction.rows) != []
        assert prediction.notes[0].startswith(f"there is no model of {note}")
        assert None not in [
            row.predicted for row in predict(replace(scenario, routing="covering", routing_parameters={})).rows
        ]
