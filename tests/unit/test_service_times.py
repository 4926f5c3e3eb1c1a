"""Emulated services of peers take as long as was drawn, whatever timers do; and those too short for a speed-up are told."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from brokerbed.broker.values import NO_PROPERTIES, Message, Properties
from brokerbed.clients.actor import Received
from brokerbed.clients.crowd import Crowd
from brokerbed.clients.session import Client
from brokerbed.log.record import RECORD, Kind, Log
from tests.conftest import FromText

MS = 1_000_000
LATE_NS = 7 * MS
SCENARIO = """
scenario: 1
name: late
clock: {measure: 100s, speedup: 20}
topology: {tree: explicit, parents: {alone: null}}
publishers: [{id: p, broker: alone, topic: t, rate: 1/s, service: {mean: 10ms, law: deterministic}}]
subscribers: [{id: s, broker: alone, topic: t, session_service: {mean: 12ms}, service: {mean: 20ms, law: deterministic}}]
"""


class LateClock:
    """Every timer fires 7 ms after it is due."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._set = count()

    def at(self, due_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        heapq.heappush(self._heap, (due_ns, next(self._set), action, argument))

    def of_brokers_ns(self, time_ns: int) -> int:
        return time_ns

    def model_ns(self, of_brokers_ns: int) -> int:
        return of_brokers_ns

    def run(self) -> None:
        while self._heap:
            due_ns, _, action, argument = heapq.heappop(self._heap)
            self.now_ns = max(self.now_ns, due_ns + LATE_NS)
            action(argument)


class Wire:
    """A client whose publications are with all others at once."""

    is_connected = is_settled = True
    under_way = held = unsent_bytes = 0
    broker = "alone"

    def __init__(self, others: "list[Wire]") -> None:
        self.acknowledged: Callable[[Message], None] | None = None
        self.is_too_late: Callable[[Message], bool] | None = None
        self.received: Received | None = None
        self.is_accepted_changed: Callable[[bool], None] | None = None
        self._others = others
        others.append(self)

    def connect(self) -> None:
        assert self.is_accepted_changed is not None
        self.is_accepted_changed(True)

    def disconnect(self) -> None: ...
    def move_to(self, broker: str) -> None: ...
    def subscribe(self, topic_filter: str, qos: int) -> None: ...
    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: Properties = NO_PROPERTIES,
        expires_at_ns: int | None = None,
    ) -> None:
        assert expires_at_ns is None
        for other in self._others:
            if other.received is not None:
                other.received(topic, payload, qos, properties)


class Nobody:
    client_id = "alone/pub"
    acknowledged = None


def test_services_are_as_long_as_drawn_although_every_timer_is_late(from_text: FromText) -> None:
    clock, log, wires = LateClock(), Log(), list[Wire]()

    def nobody(*_: object) -> Client:
        return Nobody()  # type: ignore[return-value]

    crowd = Crowd(from_text(SCENARIO).points[0], clock, log, nobody, lambda *_: Wire(wires))
    for peer in crowd.peers:
        peer.connect()
        peer.begin()
    clock.run()
    times: dict[int, dict[int, int]] = {}
    for record in RECORD.iter_unpack(log.records):
        times.setdefault(record[1], {})[record[8]] = record[0]
    assert len(times) > 50
    made = sorted(it[Kind.PUBLISHED] for it in times.values())
    alone = [
        it
        for it in times.values()
        if all(abs(it[Kind.PUBLISHED] - other) > 100 * MS or it[Kind.PUBLISHED] == other for other in made)
    ]
    assert len(alone) > 50, "most messages do not wait for others"
    assert {it[Kind.SENT] - it[Kind.PUBLISHED] for it in alone} == {10 * MS}
    assert {it[Kind.PROCESSED] - it[Kind.RECEIVED] for it in alone} == {20 * MS}


@pytest.mark.parametrize(
    ("speedup", "told"),
    [
        (20, None),  # 0.5, 0.6 and 1 ms of wall time
        (21, "1 of 3 services are too short for clock.speedup 21 (publisher p takes 0.48 ms of wall time on average"),
        (40, "2 of 3 services are too short for clock.speedup 40 (publisher p takes 0.25 ms of wall time on average"),
    ],
)
def test_run_warns_of_services_that_are_too_short_for_its_speedup(
    from_text: FromText, speedup: int, told: str | None
) -> None:
    from brokerbed.orchestrator.grounds.lateness import short_demands

    scenario = from_text(SCENARIO.replace("speedup: 20", f"speedup: {speedup}")).points[0]
    warnings = list(short_demands(scenario))
    assert [it[: len(told)] for it in warnings] == [told] if told is not None else warnings == []
