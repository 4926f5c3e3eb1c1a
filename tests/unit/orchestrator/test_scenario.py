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


def test_even_spread(from_text: FromText) -> None:
    text = "classes: 4\nsubscriptions: {mean_active: 24, lifetime: {mean: 10s}}\npublications: {rate: 6/s}\n"
    (scenario,) = from_text(MINIMAL + TREE + text).points
    churn = scenario.subscriptions.of(2, 3)
    assert churn is not None
    assert churn.arrival_rate_per_s == pytest.approx(0.2)
    assert scenario.publications.rate_per_s(0, 0) == pytest.approx(0.5)
    assert scenario.publications.class_rate_per_s(1, 3) == pytest.approx(1.5)


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
