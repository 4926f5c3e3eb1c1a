"""The timers of a broker. They run in the order of their due times and, at equal times, in the order of setting.

Most timers are set with `at` and always run. Timeouts (of a client that falls silent, or of a session that nobody
resumes) are set with `later` and can be cancelled, so that a client that reconnects again and again leaves no timers
behind.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

CANCELLED_MIN = 64  # a heap with fewer cancelled timers than this is not worth cleaning

Action = Callable[["Broker", Any, int], None]  # called with the broker, the timer's argument and its due time
SetTimer = Callable[[int, Action, Any], None]  # takes the due time, the action and its argument


class Timer:
    """A timer that can be cancelled. Once it was cancelled or has run, its action is None."""

    __slots__ = ("action", "argument")

    def __init__(self, action: Action, argument: Any) -> None:
        self.action: Action | None = action
        self.argument = argument


class Timers:
    def __init__(self, broker: "Broker", at: SetTimer | None) -> None:
        """`at`: set if the driver has its own clock. It then keeps all timers, even cancelled ones, until due."""
        self._broker = broker
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._last_number = 0
        self._cancelled = 0  # cancelled timers that are still in the heap
        self._next_turn: list[tuple[Action, Any]] = []  # what to do when the driver calls `due` next
        self._background: deque[tuple[Action, Any]] = deque()  # likewise, but one at a time from `background_ns` on
        self.background_ns = 0  # the driver sets this to a later time to leave room for other work
        self._is_driver_keeping = at is not None
        self.at: SetTimer = at if at is not None else self._push

    def later(self, due_ns: int, action: Action, argument: Any) -> Timer:
        timer = Timer(action, argument)
        self.at(due_ns, self._fire, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """A cancelled timer stays in the heap until it is due, or until half of the heap is cancelled."""
        if timer is None or timer.action is None:
            return
        timer.action = timer.argument = None
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_MIN, len(self._heap) // 2):
            self._heap[:] = [due for due in self._heap if type(due[3]) is not Timer or due[3].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_turn(self, now_ns: int, action: Action, argument: Any) -> None:
        """Have the action run soon, but not before the driver has passed on the input that is waiting."""
        if self._is_driver_keeping:
            self.at(now_ns, action, argument)
        else:
            self._next_turn.append((action, argument))

    def in_background(self, now_ns: int, action: Action, argument: Any) -> None:
        """Have the action run soon, as a small part of some long work beside which other work should not wait."""
        if self._is_driver_keeping:
            self.at(now_ns, action, argument)
        else:
            self._background.append((action, argument))

    def is_background_due(self, now_ns: int) -> bool:
        return bool(self._background) and self.background_ns <= now_ns

    @property
    def deadline_ns(self) -> int | None:
        if self._next_turn:
            return 0
        if self._background:
            return min(self.background_ns, self._heap[0][0]) if self._heap else self.background_ns
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)

    def due(self, now_ns: int) -> None:
        """Run the timers that are due by now."""
        if self._next_turn:
            turn, self._next_turn = self._next_turn, []
            for action, argument in turn:
                action(self._broker, argument, now_ns)
        if self.is_background_due(now_ns):
            action, argument = self._background.popleft()
            action(self._broker, argument, now_ns)
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            due_ns, _, action, argument = heapq.heappop(heap)
            action(self._broker, argument, due_ns)

    def _push(self, due_ns: int, action: Action, argument: Any) -> None:
        self._last_number += 1
        heapq.heappush(self._heap, (due_ns, self._last_number, action, argument))

    def _fire(self, broker: "Broker", timer: Timer, due_ns: int) -> None:
        action, argument = timer.action, timer.argument
        timer.action = timer.argument = None
        if action is not None:
            action(broker, argument, due_ns)
        elif self._cancelled:
            self._cancelled -= 1
