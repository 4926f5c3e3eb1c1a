"""Faults that somebody who watches a run asks for."""

import pytest

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
