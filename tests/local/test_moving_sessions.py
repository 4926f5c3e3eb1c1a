"""A crowd of clients, and a long queue, that move along a line of three broker processes; bench/session_moves.py has more."""

from collections.abc import Iterator

import pytest

from bench.brokers import Running, configured
from bench.session_moves import CONFIGURATION, Crowd, Queue, line

CLIENTS, EACH = 60, 5
QUEUED = 3000


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[Running]]:
    with line(configured("process", CONFIGURATION)) as running:
        yield running


def test_crowd_that_moves_at_once_gets_everything_once_and_in_order(brokers: list[Running]) -> None:
    crowd = Crowd(brokers, CLIENTS)
    for number, port in enumerate((crowd.east, crowd.west, crowd.east), 1):
        crowd.come_back(port, EACH)
        assert [phone.numbers for phone in crowd.phones] == [list(range(number * EACH))] * CLIENTS


def test_queue_moves_in_order_and_what_is_published_meanwhile_comes_behind_it(brokers: list[Running]) -> None:
    queue = Queue(brokers)
    queue.fill(QUEUED)
    moved = queue.come_back(queue.east)
    assert moved.behind > 0
    assert queue.numbers == list(range(QUEUED + moved.behind))
