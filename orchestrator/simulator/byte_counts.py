"""Logs how many bytes cross the links that have a bandwidth, in both directions, from time to time.

The counts come from the wires of the simulator and from the relays of real grounds, not from the brokers.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from brokerbed.clients.session import Clock
from brokerbed.log.record import Kind, Log
from brokerbed.scenario.faults.network import Host
from brokerbed.scenario.model import Scenario

SAMPLES = 1024  # per measured time: many for each of the batches into which the analysis divides it


class CountedLink(Protocol):
    @property
    def parent(self) -> Host: ...
    def crossed_bytes(self, way: str, /) -> int:
        """How many bytes have crossed in the direction `up` or `down` so far."""


class ByteCounts:
    def __init__(self, scenario: Scenario, clock: Clock, log: Log | None, links: Mapping[str, CountedLink]) -> None:
        """`links` as they are at the moment, by their child."""
        self._narrow = {frozenset(link.between) for link in scenario.links if link.bandwidth is not None}
        self._links = links
        self._clock = clock
        self._log = log
        self._period_ns = max(1, scenario.clock.measure // SAMPLES)
        self._end_ns = scenario.clock.warmup + scenario.clock.measure
        self._before: dict[tuple[CountedLink, str], int] = {}

    def begin(self) -> None:
        """At time zero."""
        if self._narrow and self._log is not None:
            self._before = {(link, way): link.crossed_bytes(way) for _, link, way in self._ways()}
            self._clock.at(self._period_ns, self._sample, self._period_ns)

    def _ways(self) -> Iterator[tuple[str, CountedLink, str]]:
        """The directions of the narrow links that there are."""
        present = list(self._links.items())  # which may move
        narrow = [(child, link) for child, link in present if {child, link.parent.name} in self._narrow]
        yield from ((f"{child}>{link.parent.name}", link, "up") for child, link in narrow)
        yield from ((f"{link.parent.name}>{child}", link, "down") for child, link in narrow)

    def _sample(self, due_ns: int) -> None:
        """Logs the bytes since the last sample as of the middle of that time."""
        assert self._log is not None
        for name, link, way in self._ways():
            crossed = link.crossed_bytes(way)
            size = crossed - self._before.get((link, way), 0)
            self._before[link, way] = crossed
            if size:
                number = self._log.number(name)
                self._log.add(due_ns - self._period_ns // 2, int(Kind.LINK_BYTES), number, size=size)
        if due_ns + self._period_ns <= self._end_ns:
            self._clock.at(due_ns + self._period_ns, self._sample, due_ns + self._period_ns)
