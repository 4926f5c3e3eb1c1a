"""Random draws: a seed gives the numbers that Python's own generator gives for the law."""

from itertools import accumulate, islice
from random import Random

from brokerbed.broker.laws import sampler
from brokerbed.clients.workload import arrivals


def test_exponential_services_are_those_of_the_standard_library() -> None:
    draw, reference = sampler("exponential", 62_500_000, Random("7/link/b1")), Random("7/link/b1")
    assert [draw() for _ in range(1000)] == [round(reference.expovariate(1 / 62_500_000)) for _ in range(1000)]


def test_arrivals_of_one_process_are_sums_of_exponential_times() -> None:
    reference = Random(3)
    times = accumulate(reference.expovariate(2 / 1_000_000_000) for _ in range(1000))
    assert list(islice(arrivals([2.0], Random(3)), 1000)) == [(round(time), 0) for time in times]
