"""Delivery counts and delays of subscribers, against values worked out by hand."""

from itertools import islice

import pytest

from brokerbed.clients.delivery_stats import DeliveryStats, PublisherStats
from brokerbed.clients.workload import messages
from brokerbed.scenario.peers import Publisher


def test_delays_are_from_when_each_message_was_made() -> None:
    """Made at 10, 20, 30, 40; the third is lost, the second comes again: 5 + 15 + 2."""
    stats = PublisherStats(iter([(10, 0), (20, 0), (30, 0), (40, 0)]))
    for number, now_ns in ((1, 15), (2, 35), (2, 36), (4, 42)):
        stats.add(number, now_ns)
    assert (stats.last_number, stats.count, stats.delay_sum_ns) == (4, 3, 5 + 15 + 2)


def test_what_a_fault_may_have_held_is_not_counted() -> None:
    """Made at 10 and 20, and nothing before 15 counts: only the second does, 5."""
    stats = PublisherStats(iter([(10, 0), (20, 0)]))
    stats.add(1, 24, since_ns=15)
    stats.add(2, 25, since_ns=15)
    assert (stats.last_number, stats.count, stats.delay_sum_ns) == (2, 1, 5)


def test_publishers_times_are_drawn_again_from_the_seed() -> None:
    stats = DeliveryStats(7, {"p": Publisher(id="p", broker="b", topic="t", rate="2/s")})
    made = [time_ns for time_ns, _ in islice(messages(7, "p", 2.0), 5)]
    stats.add("p", 5, made[4] + 1000)
    assert (stats.by_publisher["p"].count, stats.by_publisher["p"].delay_sum_ns) == (1, 1000)


def test_publishers_of_classes_are_nobodys_business() -> None:
    stats = DeliveryStats(7, {})
    stats.add("b0/pub", 1, 0)
    assert stats.by_publisher == {}


@pytest.mark.parametrize("number", [1, 50])
def test_publishers_do_not_share_their_times(number: int) -> None:
    one, other = (next(islice(messages(7, name, 2.0), number - 1, None)) for name in ("p", "q"))
    assert one != other
