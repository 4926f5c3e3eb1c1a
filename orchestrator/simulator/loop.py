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
        self.done = 0  # events so far
        self._heap: list[tuple[int, int, Action, Any]] = []
        self.at_once: deque[tuple[Action, Any]] = deque()
        self._set = 0

    def at(self, due_ns: int, action: Action, argument: Any) -> None:
        if due_ns <= self.now_ns:
            self.at_once.append((action, argument))
            return
        self._set += 1
        heapq.heappush(self._heap, (due_ns, self._set, action, argument))

    def soon(self, action: Action, argument: Any) -> None:
        """At this instant, after all that was set for it before."""
        self.at_once.append((action, argument))

    def run(self, until_ns: int, events_max: int) -> bool:
        """Do what is due up to then, but not more events than that; whether all of it is done."""
        heap, at_once = self._heap, self.at_once
        pop = heapq.heappop
        left = events_max
        while left > 0:
            if at_once:
                action, argument = at_once.popleft()
            elif heap and heap[0][0] <= until_ns:
                self.now_ns, _, action, argument = pop(heap)
                while heap and heap[0][0] == self.now_ns:  # ties before what they cause
                    _, _, *tied = pop(heap)
                    at_once.append((tied[0], tied[1]))
            else:
                self.now_ns = until_ns
                break
            left -= 1
            action(argument)
        self.done += events_max - left
        return left > 0
