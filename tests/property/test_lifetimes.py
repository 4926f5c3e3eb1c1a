"""Stages with lifetimes against a naive reference that moves in ticks: who is done when, and who dies when."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from brokerbed.broker.core.lifetime import stage_end_ns
from brokerbed.clients.stage import Stage

TICKS = 120
SERVICES = 3, 8, 1, 5, 13, 2  # of one message after the other, in the order in which services begin, again and again


@dataclass(eq=False)
class Item:
    number: int
    arrives: int
    dies: int | None
    left: int | None = None  # of its service; None: it has not begun


ITEMS = st.lists(st.tuples(st.integers(0, 30).map(lambda it: 2 * it), st.none() | st.integers(1, 40)), max_size=12).map(
    lambda drawn: [
        Item(number, arrives, None if lifetime is None else arrives + lifetime)
        for number, (arrives, lifetime) in enumerate(sorted(drawn, key=lambda it: it[0]))
    ]
)
SWITCHES = st.lists(st.integers(0, 50).map(lambda it: 2 * it + 1), max_size=6, unique=True).map(sorted)


def naive(items: list[Item], switches: list[int], demands: tuple[int, ...] = SERVICES) -> dict[int, tuple[str, int]]:
    """By number of the item: what became of it, and when. The stage is on at first and switches at these ticks."""
    ends: dict[int, tuple[str, int]] = {}
    queue, services, is_on = list[Item](), deque(demands), True
    for now in range(TICKS):
        for item in [it for it in queue if it.dies is not None and it.dies <= now]:
            queue.remove(item)
            ends[item.number] = "died", now
        if queue and queue[0].left == 0 and is_on:
            assume(now not in switches)  # what comes first is not specified
            ends[queue.pop(0).number] = "done", now
        queue += [item for item in items if item.arrives == now]
        is_on ^= now in switches
        if queue and is_on:
            if queue[0].left is None:
                queue[0].left = services[0]
                services.rotate(-1)
            queue[0].left -= 1
    return ends


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._set = count()

    def at(self, due_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        heapq.heappush(self._heap, (due_ns, next(self._set), action, argument))

    def run(self, until_ns: int) -> None:
        while self._heap and self._heap[0][0] <= until_ns:
            self.now_ns, _, action, argument = heapq.heappop(self._heap)
            action(argument)


@settings(max_examples=100, deadline=None)
@given(ITEMS, SWITCHES)
def test_the_queue_of_a_client(items: list[Item], switches: list[int]) -> None:
    clock, services, found = Clock(), deque(SERVICES), dict[int, tuple[str, int]]()

    def demand() -> int:
        services.rotate(-1)
        return services[-1]

    stage = Stage(
        clock, demand, lambda number, now: found.update({number: ("done", now)}),
        lambda number, now: found.update({number: ("died", now)}),
    )  # fmt: skip
    stage.switch(True)
    for item in items:
        clock.at(item.arrives, lambda it: stage.put(it.number, it.arrives, it.dies), item)
    for place, when in enumerate(switches):
        clock.at(when, stage.switch, bool(place % 2))
    clock.run(TICKS - 1)
    expected = naive(items, switches)
    assert found == expected
    assert len(stage) == len(items) - len(expected)


@settings(max_examples=100, deadline=None)
@given(ITEMS)
def test_a_stage_of_a_broker_knows_all_ends_when_messages_arrive(items: list[Item]) -> None:
    """There every message draws its service, also one that dies before that begins; here all are of 8."""
    free, found = 0, {}
    for item in items:
        end, free = stage_end_ns(free, item.arrives, 8, item.dies)
        found[item.number] = "died" if item.dies is not None and item.dies <= end else "done", end
    expected = naive(items, [], (8,))
    assert {number: end for number, end in found.items() if end[1] < TICKS} == expected
