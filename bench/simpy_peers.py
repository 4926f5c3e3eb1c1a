"""The system of scenarios/bouloukakis2017/table3_degraded.yaml as a SimPy model, to compare the simulator with.

Only the queues are modelled: there are no brokers, subscriptions, acknowledgements or message log. SimPy is a
dependency of the tests, and not of brokerbed itself.
"""

import time
from collections import deque
from collections.abc import Callable, Generator
from itertools import count
from random import Random
from typing import Any, NamedTuple

from brokerbed.broker.values import NS_PER_S
from brokerbed.scenario import Scenario

Process = Generator[Any, Any, None]
Sink = Callable[[float], None]  # takes a message, which is the time of its publication in seconds


class Modelled(NamedTuple):
    """Result of a SimPy run: services and messages counted after the warm-up, and what they cost."""

    services: int
    messages: int
    delay_s: float
    cpu_s: float
    wall_s: float


class _Counters:
    def __init__(self) -> None:
        self.services = 0
        self.messages = 0
        self.delay_sum_s = 0.0


class _Queue:
    """A first-come-first-served queue with one exponential server, which can be switched off. Service resumes."""

    def __init__(self, simpy: Any, env: Any, mean_s: float, draws: Random, counters: _Counters, then: Sink) -> None:
        self._simpy, self._env, self._draws, self._counters, self._then = simpy, env, draws, counters, then
        self._rate_per_s = 1 / mean_s
        self._waiting: deque[float] = deque()
        self._wake: Any = None  # the event for which the idle server waits
        self._is_on = True
        self._is_serving = False
        self._server = env.process(self._serve())

    def put(self, message: float) -> None:
        self._waiting.append(message)
        self._start()

    def switch(self, is_on: bool) -> None:
        self._is_on = is_on
        if is_on:
            self._start()
        elif self._is_serving:
            self._server.interrupt()

    def _start(self) -> None:
        if self._wake is not None and self._is_on and self._waiting:
            wake, self._wake = self._wake, None
            wake.succeed()

    def _serve(self) -> Process:
        env, waiting = self._env, self._waiting
        left_s = None
        while True:
            if not (self._is_on and waiting):
                self._wake = env.event()
                yield self._wake
                continue
            if left_s is None:
                left_s = self._draws.expovariate(self._rate_per_s)
            begun_s, self._is_serving = env.now, True
            try:
                yield env.timeout(left_s)
            except self._simpy.Interrupt:
                left_s -= env.now - begun_s
                self._is_serving = False
                continue
            left_s, self._is_serving = None, False
            self._counters.services += 1
            self._then(waiting.popleft())


def run(scenario: Scenario) -> Modelled | None:
    """Runs the warm-up and the measured time; None if SimPy is not installed."""
    try:
        import simpy  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    (publisher,), (subscriber,) = scenario.publishers, scenario.subscribers
    service = scenario.service
    path = (publisher.service, service.broker_in, service.link, service.broker_in, service.link, service.broker_in,
            subscriber.session_service, subscriber.service)  # fmt: skip
    env, counters, draws = simpy.Environment(), _Counters(), Random(scenario.seed)

    def processed(published_s: float) -> None:
        counters.messages += 1
        counters.delay_sum_s += env.now - published_s

    def publish(queue: _Queue, rate_per_s: float) -> Process:
        while True:
            yield env.timeout(draws.expovariate(rate_per_s))
            queue.put(env.now)

    def alternate(queue: _Queue, means_s: tuple[float, float]) -> Process:
        for period in count():
            queue.switch(period % 2 == 0)
            yield env.timeout(draws.expovariate(1 / means_s[period % 2]))

    for _ in range(scenario.copies):
        then: Sink = processed
        queues: list[_Queue] = []
        for demand in reversed(path):
            assert demand is not None
            queues.insert(0, _Queue(simpy, env, demand.mean / NS_PER_S, draws, counters, then))
            then = queues[0].put
        env.process(publish(queues[0], publisher.rate))
        for peer, queue in ((publisher, queues[0]), (subscriber, queues[-2])):
            assert peer.on is not None
            assert peer.off is not None
            env.process(alternate(queue, (peer.on.mean / NS_PER_S, peer.off.mean / NS_PER_S)))
    env.run(until=scenario.clock.warmup / NS_PER_S)
    counters.services = counters.messages = 0
    counters.delay_sum_s = 0.0
    begun_cpu_s, begun_s = time.process_time(), time.monotonic()
    env.run(until=(scenario.clock.warmup + scenario.clock.measure) / NS_PER_S)
    cpu_s, wall_s = time.process_time() - begun_cpu_s, time.monotonic() - begun_s
    return Modelled(counters.services, counters.messages, counters.delay_sum_s / counters.messages, cpu_s, wall_s)
