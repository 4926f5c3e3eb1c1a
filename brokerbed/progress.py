"""Shows the progress of long work on stderr: a bar on a terminal, elsewhere a line every few seconds.

Lines are repeated while nothing is reported, so that slow work does not look like a program that hangs.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from brokerbed.present import console
from brokerbed.scenario.units import duration_text

LINE_S, LINE_S_MAX = 5.0, 60.0  # between two lines of progress without a terminal, at first and after a while
PER_LINE = 0.05  # the time between two lines, as a fraction of the time so far


class Report(Protocol):
    """Receives the fraction of the work that is done, and the name of the current step if there are several."""

    def __call__(self, part: float, step: str = "") -> None: ...


class Estimate:
    """The progress of the work, and the time left if all of its parts take equally long (`is_even`)."""

    def __init__(self, what: str, is_even: bool, now_s: float) -> None:
        self._what = what
        self._is_even = is_even
        self._begun_s = now_s
        self._start: tuple[float, float] | None = None  # when work began, and the fraction that was done then
        self._part, self._changed_s = 0.0, now_s
        self._step = ""

    def update(self, part: float, step: str, now_s: float) -> None:
        if self._start is None or part <= 0:
            self._start = now_s, part
        if part != self._part:
            self._part, self._changed_s = part, now_s
        self._step = step

    def line(self, now_s: float) -> str:
        words = [f"{self._part:.0%}"] if self._start is not None else ["preparing"]
        if self._step:
            words.append(self._step)
        left_s = self._left_s(now_s)
        so_far = f"{duration_text(now_s - self._begun_s)} so far"
        words.append(so_far if left_s is None else f"about {duration_text(left_s)} left")
        return f"{self._what}: {', '.join(words)}"

    def _left_s(self, now_s: float) -> float | None:
        """The time left, extrapolated from the last report; None if that time has passed."""
        if self._start is None or not self._is_even or self._part <= self._start[1]:
            return None
        begun_s, before = self._start
        left_s = (self._changed_s - begun_s) * (1 - self._part) / (self._part - before) - (now_s - self._changed_s)
        return left_s if left_s > 0 else None


@contextmanager
def progress(what: str, *, is_even: bool = True) -> Iterator[Report]:
    """Shows progress while the context is open; with the time left if all parts take equally long."""
    out = console(stderr=True)
    if out.is_terminal:
        columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
        columns += [TextColumn("{task.fields[step]}"), TimeRemainingColumn() if is_even else TimeElapsedColumn()]
        with Progress(*columns, console=out, transient=True) as bar:
            task = bar.add_task(what, total=1.0, step="")
            yield lambda part, step="": bar.update(task, completed=part, step=step)
        return
    begun_s, is_over = time.monotonic(), Event()
    estimate = Estimate(what, is_even, begun_s)

    def show() -> None:
        wait_s = LINE_S
        while not is_over.wait(wait_s):
            now_s = time.monotonic()
            out.print(estimate.line(now_s), markup=False)
            wait_s = max(LINE_S, min(LINE_S_MAX, PER_LINE * (now_s - begun_s)))

    display = Thread(target=show, name="progress display", daemon=True)
    display.start()
    try:
        yield lambda part, step="": estimate.update(part, step, time.monotonic())
    finally:
        is_over.set()
        display.join()
