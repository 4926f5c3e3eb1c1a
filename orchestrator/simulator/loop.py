"""The clock of a simulation: one heap of events, integer nanoseconds, ties in the order in which they were set.

What happens at once (most links take no time) does not go through the heap: it is done after everything that was set
before it for the same instant, in order.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

Action = Callable[[Any], None]


class Loop:
    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Action, Any]] = []
        self.at_once: deque[tuple[Action, Any]] = deque()
        self._set = 0

    def at(self, due_ns: int, action: Action, argument: Any) -> None:
        if due_ns <= self.now_ns:
            self.at_once.append((action, argument))
            return
        self._set += 1
        heapq.heappush(self._heap, (due_ns, self._set, action, argument))

    def of_brokers_ns(self, time_ns: int) -> int:
        """Brokers have the same clock."""
        return time_ns

    model_ns = of_brokers_ns

    def soon(self, action: Action, argument: Any) -> None:
        """Schedules an action for this instant, after everything that was scheduled for it before."""
        self.at_once.append((action, argument))

    def run(self, until_ns: int, events_max: int) -> bool:
        """Processes events until then, but at most so many; returns whether none is left."""
        heap, at_once = self._heap, self.at_once
        pop, popleft = heapq.heappop, at_once.popleft
        left = events_max
        while left > 0:
            while at_once and left > 0:
                action, argument = popleft()
                left -= 1
                action(argument)
            if at_once:
                break
            if not heap or heap[0][0] > until_ns:
                self.now_ns = until_ns
                return True
            now_ns, _, action, argument = pop(heap)
            while heap and heap[0][0] == now_ns:  # simultaneous events come before their consequences
                at_once.append(pop(heap)[2:])
            self.now_ns = now_ns
            left -= 1
            action(argument)
        return False
