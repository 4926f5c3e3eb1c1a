"""Runs on the virtual ground in which links move at given times, whatever brokers measure."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from brokerbed.orchestrator.simulator.simulation import Simulation
from tests.analysis.real import simulate

S = 1_000_000_000
LinkMove = tuple[float, str, str]  # seconds, child, next parent


def moving_run(folder: Path, text: str, moves: Iterable[LinkMove]) -> Path:
    """The run directory. Each move must be possible when it is due: the next parent is a neighbour of the present one."""
    planned = list(moves)
    play = Simulation._play
    refused: list[str] = []

    def move(simulation: Simulation, child: str, parent: str) -> None:
        above = simulation.hosts[child].broker.overlay.parent
        assert above is not None
        assert above.link is not None
        host = simulation.hosts[above.link.peer]
        problem = host.broker.overlay.link_moves.begin(child, parent, simulation.loop.now_ns)
        if problem is not None:
            refused.append(f"{child} to {parent}: {problem}")
        host.flush()

    def play_with_moves(simulation: Simulation, *arguments: Any) -> None:
        for at_s, child, parent in planned:
            simulation.loop.at(round(at_s * S), lambda who: move(simulation, *who), (child, parent))
        play(simulation, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "_play", play_with_moves)
        place = simulate(folder, text)
    assert refused == []
    return place
