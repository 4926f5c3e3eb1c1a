"""Scenarios with `placement`: what is read, what it goes with, and what every broker of a simulation is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import Scenario, load

TEXT = """
scenario: 1
name: x
seed: 3
clock: {measure: 100s}
topology: {tree: line, brokers: 3}
routing: peer
"""
S = 1_000_000_000


def scenario(folder: Path, more: str) -> Scenario:
    (folder / "s.yaml").write_text(TEXT + more)
    return load(folder / "s.yaml").points[0]


def test_defaults(tmp_path: Path) -> None:
    """Without `costs`, all links and brokers cost 1."""
    given = scenario(tmp_path, "placement: {period: 1min}\n")
    assert given.placement is not None
    assert given.placement.model_dump() == {
        "period": 60 * S, "alpha": 1.0, "beta": 1.0, "moves": 100, "iterations": 50, "tenure": 2, "gain": 0.05,
    }  # fmt: skip
    assert given.costs is not None
    assert given.costs.of_link("b0", "b2") == given.costs.of_broker("b1") == 1


def test_weights_of_links_and_brokers(tmp_path: Path) -> None:
    costs = "costs: {links: {b0-b2: 5}, brokers: {b1: 3}}\n"
    weighted = scenario(tmp_path, costs + "placement: {period: 1s, alpha: 2, beta: 0.5}\n").costs
    plain = scenario(tmp_path, costs).costs
    assert plain is not None
    assert weighted is not None
    assert [weighted.of_link("b2", "b0"), weighted.of_link("b0", "b1"), weighted.of_broker("b1")] == [10, 2, 1.5]
    assert [plain.of_link("b2", "b0"), plain.of_link("b0", "b1"), plain.of_broker("b1")] == [5, 1, 3]


def test_links_stay_without_placement(tmp_path: Path) -> None:
    given = scenario(tmp_path, "")
    assert given.placement is None
    assert given.costs is None
    assert all(host._config(1).placement is None for host in Simulation(given).hosts.values())


def test_any_two_brokers_can_have_a_link_or_be_cut(tmp_path: Path) -> None:
    given = scenario(
        tmp_path,
        "placement: {period: 1s}\nlinks: [{between: [b0, b2], bandwidth: 1kbit/s}]\n"
        "faults: [{at: 5s, cut: [b2, b0], for: 1s}]\n",
    )
    assert given.links[0].between == ("b0", "b2")
    assert given.faults[0].target == ("b2", "b0")


def test_a_cut_of_what_is_no_link_at_that_moment_is_skipped_and_reported(tmp_path: Path) -> None:
    given = scenario(
        tmp_path,
        "placement: {period: 1h}\nfaults: [{at: 5s, cut: [b2, b0], for: 1s}, {at: 6.5s, cut: [b2, b1], for: 1s}]\n",
    )
    simulation = Simulation(replace(given, placement=None))
    simulation.run()
    assert simulation.faults.skipped == ["cut b2-b0 at 5 s"]
    assert [fault["what"] for fault in simulation.faults.history_as_json()] == ["cut b2-b1"]


@pytest.mark.parametrize("seed", [3, 4])
def test_every_broker_is_told_the_settings_and_costs(tmp_path: Path, seed: int) -> None:
    given = scenario(
        tmp_path,
        "costs: {link: 2, links: {b0-b2: 5}, broker: 3, brokers: {b1: 7}}\n"
        "placement: {period: 2s, alpha: 0.5, beta: 4, moves: 5, iterations: 6, tenure: 7, gain: 10%}\n",
    )
    hosts = Simulation(replace(given, seed=seed)).hosts
    configs = {name: host._config(1).placement for name, host in hosts.items()}
    for config in configs.values():
        assert config is not None
        assert config.period_ns == 2 * S
        assert (config.moves, config.iterations, config.tenure, config.gain) == (5, 6, 7, 0.1)
        assert config.of_link("b0", "b2") == 2.5
        assert config.of_link("b1", "b0") == 1
        assert config.of_broker("b1") == 28
        assert config.of_broker("b2") == 12
    again = Simulation(replace(given, seed=seed)).hosts
    drawn = {name: config.draw.randrange(10**9) for name, config in configs.items() if config is not None}
    assert len(set(drawn.values())) == 3
    repeated = {
        name: config.draw.randrange(10**9) for name, host in again.items() if (config := host._config(1).placement)
    }
    assert repeated == drawn
