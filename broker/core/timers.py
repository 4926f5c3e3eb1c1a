"""The timers of a broker: what is to be done when, in the order of time and, at one time, in the order of setting.

Most timers are set with `at` and do happen. Those that wait for something to go wrong (a client that falls silent, a
session that nobody comes back to) are set with `later` and cancelled, so that a client that reconnects again and again
leaves nothing behind.
"""

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

CANCELLED_MIN = 64  # a heap with fewer cancelled timers than this is not worth cleaning

Action = Callable[["Broker", Any, int], None]  # what a timer does: with what it was set for, at its due time
SetTimer = Callable[[int, Action, Any], None]  # for when, what is to be done then, and with what


class Timer:
    """One that can be cancelled. It has no action any more once it was cancelled or was due."""

    __slots__ = ("action", "argument")

    def __init__(self, action: Action, argument: Any) -> None:
        self.action: Action | None = action
        self.argument = argument


class Timers:
    def __init__(self, broker: "Broker", at: SetTimer | None) -> None:
        """`at`: the driver has a clock of its own and keeps the timers, cancelled ones too until they are due."""
        self._broker = broker
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._last_number = 0
        self._cancelled = 0  # and still in the heap
        self.at: SetTimer = at if at is not None else self._push

    def later(self, due_ns: int, action: Action, argument: Any) -> Timer:
        timer = Timer(action, argument)
        self.at(due_ns, self._ring, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """A cancelled timer stays in the heap until it is due, or until half of the heap is cancelled."""
        if timer is None or timer.action is None:
            return
        timer.action = timer.argument = None
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_MIN, len(self._heap) // 2):
            self._heap[:] = [it for it in self._heap if type(it[3]) is not Timer or it[3].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    @property
    def deadline_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)

    def due(self, now_ns: int) -> None:
        """Do what is due by now."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            due_ns, _, action, argument = heapq.heappop(heap)
            action(self._broker, argument, due_ns)

    def _push(self, due_ns: int, action: Action, argument: Any) -> None:
        self._last_number += 1
        heapq.heappush(self._heap, (due_ns, self._last_number, action, argument))

    def _ring(self, broker: "Broker", timer: Timer, due_ns: int) -> None:
        action, argument = timer.action, timer.argument
        timer.action = timer.argument = None
        if action is not None:
            action(broker, argument, due_ns)
        elif self._cancelled:
            self._cancelled -= 1
