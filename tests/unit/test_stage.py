"""The queue of a testbed's client, with timers that fire late."""

import heapq
from collections.abc import Callable
from typing import Any

from clients.stage import Stage


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


def stage_of(clock: LateClock, demand_ns: int) -> tuple[Stage, list[tuple[object, int]]]:
    done: list[tuple[object, int]] = []
    stage = Stage(clock, lambda: demand_ns, lambda item: done.append((item, clock.now_ns)))
    stage.switch(True)
    return stage, done


def test_late_timers_do_not_add_up() -> None:
    """A and B came together: B is due at 20, though the timer of A fired at 15."""
    clock = LateClock()
    stage, done = stage_of(clock, 10)
    stage.put("A")
    stage.put("B")
    clock.fire(15)
    clock.fire(20)
    assert done == [("A", 15), ("B", 20)]


def test_nobody_is_served_before_he_came() -> None:
    """B came at 14, when A should have been done since 10 and its timer had not fired: B takes until 24."""
    clock = LateClock()
    stage, done = stage_of(clock, 10)
    stage.put("A")
    clock.now_ns = 14
    stage.put("B")
    clock.fire(15)
    clock.fire(23)
    assert done == [("A", 15)]
    clock.fire(24)
    assert done == [("A", 15), ("B", 24)]


def test_interrupted_service_goes_on_where_it_stopped() -> None:
    clock = LateClock()
    stage, done = stage_of(clock, 10)
    stage.put("A")
    clock.fire(4)
    stage.switch(False)
    clock.fire(50)
    stage.switch(True)
    clock.fire(55)
    assert done == []
    clock.fire(56)
    assert done == [("A", 56)]
