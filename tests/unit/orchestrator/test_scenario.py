"""What a valid scenario file means: units, defaults, laws, sweeps, copies."""

from pathlib import Path

import pytest

from brokerbed.scenario import Law, ScenarioError, load
from brokerbed.scenario.format import Fault
from brokerbed.scenario.units import (
    parse_bandwidth_bit_per_s,
    parse_duration_ns,
    parse_fraction,
    parse_rate_per_s,
    parse_size_bytes,
)
from tests.conftest import MINIMAL, FromText

TREE = "topology: {tree: line, brokers: 3}\n"


def test_defaults(from_text: FromText) -> None:
    (scenario,) = from_text(MINIMAL + TREE).points
    assert (scenario.routing, scenario.seed, scenario.clock.speedup, scenario.tolerance.default) == (
        "identity",
        1,
        1,
        0.02,
    )
    assert (scenario.copies, scenario.payload_bytes, scenario.durability) == (1, 64, "process")
    assert scenario.refresh_ns is None
    assert scenario.subscriptions.qos == scenario.publications.qos == 0


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1ns", 1), ("2us", 2000), ("62.5ms", 62_500_000), ("121.5s", 121_500_000_000), ("10min", 600 * 10**9),
     ("1h", 3600 * 10**9), ("1e3 s", 10**12), ("0s", 0), (" 5 s ", 5 * 10**9), (".5s", 5 * 10**8), (0, 0)],
)  # fmt: skip
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


def test_rates_sizes_bandwidths_fractions() -> None:
    assert [parse_rate_per_s(text) for text in ("3/s", "30/min", "7200/h", "0/s")] == [3, 0.5, 2, 0]
    assert [parse_size_bytes(text) for text in ("64MB", "1KiB", 5, "0.5kB")] == [64_000_000, 1024, 5, 500]
    assert parse_bandwidth_bit_per_s("64kbit/s") == 64_000
    assert [parse_fraction(text) for text in ("2%", 0.05, "0%", 0)] == [0.02, 0.05, 0, 0]


@pytest.mark.parametrize(
    ("law", "factor"), [("exponential", 2), ("deterministic", 1), ("uniform", 4 / 3), ("lognormal", 2)]
)
def test_law_second_moment(law: str, factor: float) -> None:
    drawn = Law.model_validate({"mean": "3s", "law": law})
    assert drawn.mean_s == 3
    assert drawn.second_moment_s2 == pytest.approx(9 * factor)


def test_law_second_moment_of_a_lognormal_with_cv() -> None:
    assert Law.model_validate({"mean": "3s", "law": "lognormal", "cv": 0.5}).second_moment_s2 == pytest.approx(9 * 1.25)


def test_on_and_off_are_words_and_not_booleans(from_text: FromText) -> None:
    peers = "publishers: [{id: p, broker: b0, topic: t, rate: 1/s, on: {mean: 1s}, off: {mean: 2s}}]\n"
    (scenario,) = from_text(MINIMAL + TREE + peers).points
    assert scenario.publishers[0].off == Law.model_validate({"mean": "2s"})
    assert scenario.publishers[0].qos == 1


def test_faults_for_fixed_or_by_a_law(from_text: FromText) -> None:
    faults = (
        "faults: [{at: 1s, cut: [b1, b0], way: b0>b1, for: 2s}, {every: {mean: 3s}, crash: any, for: {mean: 4s}}]\n"
    )
    (scenario,) = from_text(MINIMAL + TREE + faults).points
    cut, nemesis = scenario.faults
    assert isinstance(cut, Fault)
    assert (cut.kind.name, cut.at, cut.target, cut.options) == ("cut", 10**9, ("b1", "b0"), {"way": "b0>b1"})
    assert cut.for_.law == "deterministic"
    assert (nemesis.kind.name, nemesis.target, nemesis.for_.law) == ("crash", "any", "exponential")


def test_expiry_is_a_duration_or_a_law(from_text: FromText) -> None:
    peers = "publishers: [{id: p, broker: b0, topic: t, rate: 1/s, expiry: 1s}]\nsweep: {publishers.p.expiry: [20s, {mean: 5s}, null]}\n"
    fixed, drawn, endless = (point.publishers[0].expiry for point in from_text(MINIMAL + TREE + peers).points)
    assert fixed == Law.model_validate({"mean": "20s", "law": "deterministic"})
    assert drawn == Law.model_validate({"mean": "5s", "law": "exponential"})
    assert endless is None


def test_even_spread(from_text: FromText) -> None:
    text = "classes: 4\nsubscriptions: {mean_active: 24, lifetime: {mean: 10s}}\npublications: {rate: 6/s}\n"
    (scenario,) = from_text(MINIMAL + TREE + text).points
    churn = scenario.subscriptions.of(2, 3)
    assert churn is not None
    assert churn.arrival_rate_per_s == pytest.approx(0.2)
    assert scenario.publications.rate_per_s(0, 0) == pytest.approx(0.5)
    assert scenario.publications.mean_rate_per_s(range(1, 2)) == pytest.approx(1.5)


def test_spread_over_some_brokers(from_text: FromText) -> None:
    """Three brokers in a line: b2 is the only leaf."""
    text = "subscriptions: {mean_active: 24, lifetime: {mean: 10s}, where: leaves}\npublications: {rate: 6/s, where: [b0, b1]}\n"
    (scenario,) = from_text(MINIMAL + TREE + "classes: 4\n" + text).points
    churn = scenario.subscriptions.of(2, 3)
    assert churn is not None
    assert churn.mean_active == pytest.approx(24 / 4)
    assert scenario.subscriptions.of(0, 3) is scenario.subscriptions.of(1, 3) is None
    assert [scenario.publications.rate_per_s(broker, 1) for broker in range(3)] == pytest.approx([0.75, 0.75, 0])


def test_rates_of_single_brokers_replace_the_spread_also_elsewhere(from_text: FromText) -> None:
    text = "publications: {rate: 6/s, where: [b0], at: [{broker: b2, class: 1, rate: 5/s}, {broker: b0, class: 0, rate: 2/s}]}"
    (scenario,) = from_text(MINIMAL + TREE + "classes: 3\n" + text).points
    assert scenario.publications.mean_rate_per_s(range(3)) == pytest.approx(2 + 2 + 2 + 5)
    assert scenario.publications.mean_rate_per_s(range(1, 2)) == pytest.approx(2 + 5)


def test_groups_and_wide_subscriptions(from_text: FromText) -> None:
    text = "classes: {count: 8, groups: 3}\nsubscriptions: {lifetime: {mean: 10s}, where: [b1, b2], wide: {mean_active: 12}}\n"
    (scenario,) = from_text(MINIMAL + TREE + text).points
    assert [scenario.class_topic(number) for number in (0, 1, 5)] == [
        "group/0000/0000",
        "group/0001/0001",
        "group/0002/0005",
    ]
    assert scenario.subscriptions.wide is not None
    assert scenario.subscriptions.wide.mean_active == pytest.approx(12 / (2 * 3))
    expected = {"group/0001/+": [1, 4, 7], "group/0002/+": [2, 5], "group/0001/#": [1, 4, 7], "+/0001/+": [1, 4, 7],
                "group/0001/0004": [4], "group/0002/0004": [], "group/+/0004": [4], "#": list(range(8)),
                "group/+/+": list(range(8)), "group/+": [], "group/1/+": [], "group/0003/+": [], "class/0001": []}  # fmt: skip
    assert {topic: list(scenario.classes_matching(topic)) for topic in expected} == expected
    above = {
        topic: scenario.group_above(topic)
        for topic in ("group/0001/0004", "group/0001/x", "group/0001/+", "t", "group/0009/x")
    }
    assert above == {"group/0001/0004": 1, "group/0001/x": 1, "group/0001/+": None, "t": None, "group/0009/x": None}


def test_sources_publish_while_they_are_on(from_text: FromText) -> None:
    text = "publications: {rate: 6/s, sources: {on: {mean: 10s}, off: {mean: 30s, law: uniform}}}\n"
    (scenario,) = from_text(MINIMAL + TREE + text).points
    assert scenario.publications.rate_per_s(1, 0) == pytest.approx(2)
    assert scenario.publications.mean_rate_per_s(range(1)) == pytest.approx(6 / 4)


def test_routing_with_and_without_parameters(from_text: FromText) -> None:
    forms = {"identity": {}, "merging": {"threshold": 3}, "{algorithm: merging, threshold: 5}": {"threshold": 5},
             "{algorithm: merging}": {"threshold": 3}, "{algorithm: peer}": {}}  # fmt: skip
    for form, parameters in forms.items():
        (scenario,) = from_text(MINIMAL + TREE + f"routing: {form}\n").points
        assert scenario.routing in form
        assert scenario.routing_parameters == parameters


def test_sweep_over_routing_and_what_goes_with_it(from_text: FromText) -> None:
    text = """
routing: {algorithm: merging}
classes: {count: 6}
publications: {rate: 1/s}
subscriptions: {mean_active: 1, lifetime: {mean: 1s}}
sweep:
  - {routing: peer}
  - {routing: {algorithm: merging, threshold: 7}, classes: 9}
  - {routing.threshold: 4, classes.groups: 3, subscriptions.wide.mean_active: 2, subscriptions.where: [b1]}
  - {publications.sources: {on: {mean: 1s}, off: {mean: 1s}}, publications.where: leaves}
"""
    peer, seven, four, sources = from_text(MINIMAL + TREE + text).points
    assert (peer.routing, peer.routing_parameters, peer.classes, peer.groups) == ("peer", {}, 6, None)
    assert (seven.routing_parameters, seven.classes) == ({"threshold": 7}, 9)
    assert (four.routing_parameters, four.groups, four.subscriptions.places) == ({"threshold": 4}, 3, frozenset({1}))
    assert four.subscriptions.wide is not None
    assert sources.publications.sources is not None
    assert sources.publications.places == frozenset({2})


def test_copies_have_ids_and_topics_of_their_own(from_text: FromText) -> None:
    text = "subscribers: [{id: s, broker: b0, topic: a/#}]\ncopies: 2\n"
    (scenario,) = from_text(MINIMAL + TREE + text).points
    first, second = (scenario.copy_of(scenario.subscribers[0], copy) for copy in (0, 1))
    assert (first.id, first.topic) == ("s.0", "copy0/a/#")
    assert (second.id, second.topic) == ("s.1", "copy1/a/#")
    (single,) = from_text(MINIMAL + TREE + text.replace("2", "1")).points
    assert single.copy_of(single.subscribers[0], 0).topic == "a/#"


def test_sweep_every_combination_in_order(from_text: FromText) -> None:
    experiment = from_text(
        MINIMAL + "topology: {tree: levels, brokers: 7}\nsweep: {topology.width: [1, 2], seed: [5, 6]}\n"
    )
    assert experiment.is_sweep
    assert [(len(point.tree.level_starts), point.seed) for point in experiment.points] == [
        (7, 5),
        (7, 6),
        (4, 5),
        (4, 6),
    ]


def test_sweep_list_of_points_by_id_by_position_and_by_taking_away(from_text: FromText) -> None:
    text = """
publishers: [{id: p, broker: b0, topic: t, rate: 1/s, on: {mean: 1s}, off: {mean: 1s}}]
faults: [{at: 1s, crash: b0, for: 2s}]
sweep:
  - {publishers.p.rate: 7/s, faults.0.at: 4s}
  - {publishers.0.on: null, publishers.p.off: null, service.link.mean: 3s}
"""
    one, two = from_text(MINIMAL + TREE + text).points
    assert (one.publishers[0].rate, one.faults[0].at, one.service.link) == (7, 4 * 10**9, None)
    assert one.publishers[0].on is not None
    assert two.publishers[0].on is two.publishers[0].off is None
    assert two.publishers[0].rate == 1
    assert two.service.link is not None
    assert two.at == {"publishers.0.on": None, "publishers.p.off": None, "service.link.mean": "3s"}


def test_aliases_and_quotes_are_ordinary_yaml(from_text: FromText) -> None:
    text = """
publishers:
  - &first {id: "p", broker: b0, topic: 'a b', rate: 1/s, on: &period {mean: 5s}, off: *period}
"""
    (scenario,) = from_text(MINIMAL + TREE + text).points
    assert scenario.publishers[0].topic == "a b"
    assert scenario.publishers[0].off is not None


def test_classes_matching(from_text: FromText) -> None:
    (scenario,) = from_text(MINIMAL + TREE + "classes: 30\n").points
    expected = {"class/0017": [17], "+/0017": [17], "class/17": [], "class/0030": [], "class/+": list(range(30)),
                "#": list(range(30)), "class": [], "class/#": list(range(30)), "other/0017": [], "class/0017/x": [],
                "class/any of them": [], "+": [], "class/" + "9" * 5000: []}  # fmt: skip
    assert {topic: list(scenario.classes_matching(topic)) for topic in expected} == expected


def test_scenario_is_frozen(from_text: FromText) -> None:
    (scenario,) = from_text(MINIMAL + TREE).points
    with pytest.raises(AttributeError):
        scenario.seed = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        scenario.clock.speedup = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        scenario.tree.parents[0] = 1


def test_explicit_tree_of_100_000_brokers_loads(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    names = "".join(f"    n{i}: n{(i - 1) // 2}\n" for i in range(1, 100_000))
    file.write_text(MINIMAL + "topology:\n  tree: explicit\n  parents:\n    n0: null\n" + names)
    assert len(load(file).points[0].tree) == 100_000
    file.write_text(MINIMAL + "topology:\n  tree: explicit\n  parents:\n    n0: null\n    extra: n0\n" + names)
    with pytest.raises(ScenarioError, match="100001 brokers; at most 100000"):
        load(file)
