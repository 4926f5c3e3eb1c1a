"""Logs how many bytes cross the links that have a bandwidth, in both directions, from time to time.

The counts come from the wires of the simulator and from the relays of real grounds, not from the brokers.
"""

from collections.abc import Mapping
from typing import Protocol

from brokerbed.clients.session import Clock
from brokerbed.log.record import Kind, Log
from brokerbed.scenario.faults.network import Host
from brokerbed.scenario.model import Scenario

SAMPLES = 1024  # per measured time: many for each of the batches into which the analysis divides it


class CountedLink(Protocol):
    @property
    def parent(self) -> Host:
        """The broker at its other end, which can change."""

    def crossed_bytes(self, way: str, /) -> int:
        """How many bytes have crossed in the direction `up` or `down` so far."""


class ByteCounts:
    def __init__(self, scenario: Scenario, clock: Clock, log: Log | None, links: Mapping[str, CountedLink]) -> None:
        """`links` by their child."""
        narrow = {frozenset(link.between) for link in scenario.links if link.bandwidth is not None}
        moves = scenario.placement is not None and bool(narrow)
        children = [child for child, parent in scenario.tree.links if moves or {child, parent} in narrow]
        self._narrow = narrow
        self._ways = [(child, links[child], way) for way in ("up", "down") for child in children]
        self._clock = clock
        self._log = log
        self._period_ns = max(1, scenario.clock.measure // SAMPLES)
        self._end_ns = scenario.clock.warmup + scenario.clock.measure
        self._before: dict[tuple[str, str], int] = {}  # by child and direction

    def begin(self) -> None:
        """At time zero."""
        if self._ways and self._log is not None:
            self._before = {(child, way): link.crossed_bytes(way) for child, link, way in self._ways}
            self._clock.at(self._period_ns, self._sample, self._period_ns)

    def _sample(self, due_ns: int) -> None:
        """Logs the bytes since the last sample as of the middle of that time."""
        assert self._log is not None
        for child, link, way in self._ways:
            crossed, ends = link.crossed_bytes(way), (child, link.parent.name)
            size, self._before[child, way] = crossed - self._before[child, way], crossed
            if size and frozenset(ends) in self._narrow:
                number = self._log.number(">".join(ends if way == "up" else ends[::-1]))
                self._log.add(due_ns - self._period_ns // 2, int(Kind.LINK_BYTES), number, size=size)
        if due_ns + self._period_ns <= self._end_ns:
            self._clock.at(due_ns + self._period_ns, self._sample, due_ns + self._period_ns)
