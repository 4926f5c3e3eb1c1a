"""The queue of a testbed's client, with timers that fire late."""

import heapq
from collections.abc import Callable
from typing import Any

from brokerbed.clients.stage import Stage


class LateClock:
    """Does what is due when somebody sets the time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []

    def at(self, due_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        heapq.heappush(self._heap, (due_ns, len(self._heap), action, argument))

    def fire(self, now_ns: int) -> None:
        self.now_ns = now_ns
        while self._heap and self._heap[0][0] <= now_ns:
            _, _, action, argument = heapq.heappop(self._heap)
            action(argument)


def stage_of(clock: LateClock, demand_ns: int | None) -> tuple[Stage, list[tuple[object, int, int]]]:
    """The stage, and what it has done: what, when its service ended, and when its timer fired."""
    done: list[tuple[object, int, int]] = []
    demand = None if demand_ns is None else lambda: demand_ns
    stage = Stage(clock, demand, lambda item, time_ns: done.append((item, time_ns, clock.now_ns)))
    stage.switch(True)
    return stage, done


def test_late_timers_neither_lengthen_services_nor_add_up() -> None:
    """A and B came together: A's service ends at 10 and B's at 20, though the timer of A fired at 15."""
    clock = LateClock()
    stage, done = stage_of(clock, 10)
    stage.put("A", 0)
    stage.put("B", 0)
    clock.fire(15)
    clock.fire(20)
    assert done == [("A", 10, 15), ("B", 20, 20)]


def test_nobody_is_served_before_he_came() -> None:
    """B came at 14, when A should have been done since 10 and its timer had not fired: B takes until 24."""
    clock = LateClock()
    stage, done = stage_of(clock, 10)
    stage.put("A", 0)
    stage.put("B", 14)
    clock.fire(15)
    clock.fire(23)
    assert done == [("A", 10, 15)]
    clock.fire(25)
    assert done == [("A", 10, 15), ("B", 24, 25)]


def test_interrupted_service_goes_on_where_it_stopped() -> None:
    clock = LateClock()
    stage, done = stage_of(clock, 10)
    stage.put("A", 0)
    clock.fire(4)
    stage.switch(False)
    clock.fire(50)
    stage.switch(True)
    clock.fire(55)
    assert done == []
    clock.fire(56)
    assert done == [("A", 56, 56)]


def test_what_comes_while_it_is_off_begins_when_it_is_on() -> None:
    """At 20, though A came at 5; without a demand it ends there, too."""
    for demand_ns, end_ns in ((10, 30), (None, 20)):
        clock = LateClock()
        stage, done = stage_of(clock, demand_ns)
        stage.switch(False)
        stage.put("A", 5)
        clock.fire(20)
        stage.switch(True)
        clock.fire(31)
        assert [it[:2] for it in done] == [("A", end_ns)]
