"""Faults that somebody who watches a run asks for."""

from typing import Any

import pytest

from brokerbed.broker.core.link_moves import LinkMoves
from brokerbed.broker.values import NS_PER_S
from brokerbed.orchestrator.simulator.simulation import Simulation
from tests.conftest import FromText

TEXT = """
scenario: 1
name: struck
clock: {measure: 10s}
topology: {tree: line, brokers: 2}
copies: 3
publishers: [{id: p, broker: b0, topic: t, rate: 1/s}]
subscribers: [{id: s, broker: b1, topic: t}]
"""


@pytest.mark.parametrize(("target", "kept_off"), [("p", ["p.0", "p.1", "p.2"]), ("p.1", ["p.1"])])
def test_a_peer_or_a_single_copy_can_be_disconnected(from_text: FromText, target: str, kept_off: list[str]) -> None:
    simulation = Simulation(from_text(TEXT).points[0], None)
    found = []
    for peer in simulation.crowd.peers:
        peer.keep_off = lambda _, name=peer.peer.id: found.append(name)  # type: ignore[method-assign,misc]
    assert simulation.faults.strike("disconnect", target) is not None
    assert found == kept_off


@pytest.mark.parametrize("target", ["q", "p.3", "p.0.0"])
def test_peer_that_is_not_there_is_told(from_text: FromText, target: str) -> None:
    simulation = Simulation(from_text(TEXT).points[0], None)
    with pytest.raises(ValueError, match=rf"^there is no {target} to disconnect$"):
        simulation.faults.strike("disconnect", target)


MOVING = """
scenario: 1
name: moving
clock: {measure: 45s}
topology: {tree: line, brokers: 3}
routing: peer
publishers: [{id: p, broker: b0, topic: t, rate: 1/s}]
subscribers: [{id: s, broker: b2, topic: t}]
faults: [{at: 20s, cut: [b1, b2], for: 5s}, {at: 30s, cut: [b0, b2], for: 5s}]
"""


def moved_at(simulation: Simulation, at_s: int) -> None:
    """Has b2 move from b1 to b0 at this time."""

    def move(_: None) -> None:
        old = simulation.hosts["b1"]
        assert old.broker.overlay.link_moves.begin("b2", "b0", simulation.loop.now_ns) is None
        old.flush()

    simulation.loop.at(at_s * NS_PER_S, move, None)


@pytest.mark.parametrize(
    ("at_s", "struck", "skipped"),
    [(10, ["cut b2-b0"], ["cut b1-b2 at 20 s"]), (27, ["cut b2-b1", "cut b2-b0"], []),
     (40, ["cut b2-b1"], ["cut b0-b2 at 30 s"])],
)  # fmt: skip
def test_a_cut_strikes_the_link_as_it_is_at_that_moment(
    from_text: FromText, monkeypatch: pytest.MonkeyPatch, at_s: int, struck: list[str], skipped: list[str]
) -> None:
    """`any two brokers may be linked` is not checked here: the file may name pairs only where links move."""
    monkeypatch.setattr("brokerbed.scenario.faults.targets.link_exists", lambda *_: None)
    simulation = Simulation(from_text(MOVING).points[0], None)
    moved_at(simulation, at_s)
    simulation.run()
    history = simulation.faults.history_as_json()
    assert [fault["what"] for fault in history] == struck
    assert all("fault_confirmed" in fault and "heal_confirmed" in fault for fault in history)
    assert simulation.faults.skipped == skipped


def test_a_cut_ends_for_the_link_that_it_struck_when_the_child_has_another_parent(
    from_text: FromText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old link is cut at the moment at which the child leaves it for good."""
    monkeypatch.setattr("brokerbed.scenario.faults.targets.link_exists", lambda *_: None)
    simulation = Simulation(from_text(MOVING.split("faults")[0]).points[0], None)
    numbers: list[int | None] = []
    original = LinkMoves._go

    def go(self: LinkMoves, *arguments: Any) -> None:
        numbers.append(simulation.faults.strike("cut", ["b1", "b2"]))
        original(self, *arguments)

    monkeypatch.setattr(LinkMoves, "_go", go)
    moved_at(simulation, 10)
    healed: list[bool] = []
    simulation.loop.at(20 * NS_PER_S, lambda _: healed.append(simulation.faults.heal_one(numbers[0] or 0)), None)
    simulation.run()
    assert healed == [True]
    (fault,) = simulation.faults.history_as_json()
    assert fault["what"] == "cut b2-b1"
    assert 10 <= fault["fault_confirmed"] < 11
    assert 20 <= fault["heal_confirmed"] < 21
    assert simulation.links["b2"].parent.name == "b0"
    assert simulation.links["b2"].is_connected
