"""Long work is done in parts, and leaves most of the time to other work; an event loop and a clock of the test's own."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.runtime.server import Server

MS = 1_000_000
PART_NS = 300_000
BEGIN_NS = 1_000 * MS


class Clock:
    """Time passes while nothing is to be done, and while the long work works."""

    def __init__(self) -> None:
        self.now_ns = BEGIN_NS
        self._calls: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        due_ns = self.now_ns + round(delay_s * 1000) * MS  # as uvloop does
        heapq.heappush(self._calls, (due_ns, next(self._numbers), call, arguments))
        return Handle()  # type: ignore[return-value]

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.call_later(0, call, *arguments)

    def run(self, seconds: float) -> None:
        end_ns = self.now_ns + round(seconds * 1000) * MS
        while self._calls and self._calls[0][0] <= end_ns:
            due_ns, _, call, arguments = heapq.heappop(self._calls)
            self.now_ns = max(self.now_ns, due_ns)
            call(*arguments)
        self.now_ns = max(self.now_ns, end_ns)


class Handle:
    def cancel(self) -> None:
        raise AssertionError("no timer of this test is replaced by an earlier one")


class LongWork:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.began_ns: list[int] = []  # each part
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.clock)
        monkeypatch.setattr(Server, "now_ns", lambda _: self.clock.now_ns)
        self.broker = Broker(BrokerConfig())
        self.server = Server(self.broker)

    def begin(self) -> None:
        self.broker.timers.in_background(self.clock.now_ns, self._part, None)
        self.server.flush()

    def _part(self, broker: Broker, _: Any, now_ns: int) -> None:
        self.began_ns.append(now_ns)
        self.clock.now_ns += PART_NS
        broker.timers.in_background(now_ns, self._part, None)

    @property
    def worked_ns(self) -> int:
        return PART_NS * len(self.began_ns)


def test_long_work_has_an_eighth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(monkeypatch)
    work.begin()
    work.clock.run(10)
    assert 1150 * MS < work.worked_ns < 1261 * MS  # an eighth of 10 s, and 10 ms ahead


def test_short_work_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(monkeypatch)
    work.begin()
    work.clock.run(0.01)
    assert work.worked_ns >= 10 * MS


def test_work_goes_on_at_once_although_the_store_was_blocked_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(monkeypatch)
    work.begin()
    work.clock.run(1)
    parts = len(work.began_ns)
    work.clock.now_ns += 3600 * 1000 * MS  # the process was stopped
    work.clock.run(0.5)
    assert len(work.began_ns) > parts + 50


def test_parts_run_one_at_a_time_in_the_order_of_their_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(monkeypatch)
    done: list[str] = []
    for name in "abc":
        work.broker.timers.in_background(BEGIN_NS, lambda _, name, __: done.append(name), name)
    while work.broker.deadline_ns is not None:
        parts = len(done)
        work.broker.due(BEGIN_NS)
        assert len(done) == parts + 1
    assert done == ["a", "b", "c"]


def test_work_waits_until_the_driver_lets_it_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(monkeypatch)
    work.broker.timers.background_ns = BEGIN_NS + MS
    work.broker.timers.in_background(BEGIN_NS, work._part, None)
    work.broker.due(BEGIN_NS)
    assert (work.began_ns, work.broker.deadline_ns) == ([], BEGIN_NS + MS)
    work.broker.due(BEGIN_NS + MS)
    assert work.began_ns == [BEGIN_NS + MS]
