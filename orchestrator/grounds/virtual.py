"""The virtual ground: broker cores on a simulated network and clock."""

from brokerbed.clients.raw_log import writer
from brokerbed.orchestrator.faults import skipped_warnings
from brokerbed.orchestrator.grounds.base import Notify, Place, Played, Progress
from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import Scenario


class VirtualGround:
    def __init__(self) -> None:
        self._simulation: Simulation | None = None
        self._is_stopped = False
        self.played = Played()

    def check(self, scenario: Scenario) -> None:
        """Whatever fits into memory, which is hard to tell before."""

    def prepare(self, notify: Notify) -> None:
        """Nothing."""

    def play(self, scenario: Scenario, place: Place, progress: Progress) -> None:
        simulation = self._simulation = Simulation(scenario, writer(place.raw))
        if self._is_stopped:
            simulation.stop()
        simulation.run(progress, place.pacer)
        if simulation.is_ended_early:
            self.played.end_ns = simulation.end_ns
        self.played.warnings += skipped_warnings(simulation.faults.skipped)

    def stop(self) -> None:
        self._is_stopped = True
        if self._simulation is not None:
            self._simulation.stop()
