"""What the live page shows, worked out by hand."""

import pytest

from brokerbed.orchestrator.live.feed import Average, BrokerCounters, grown


def test_counters_grow_and_begin_anew_with_their_broker() -> None:
    before = {("top", "notification"): 10.0, ("top", "subscribe"): 4.0}
    after = {("top", "notification"): 25.0, ("top", "subscribe"): 1.0, ("low", "notification"): 3.0}
    assert grown(before, after) == {
        ("top", "notification"): 15.0,
        ("top", "subscribe"): 1.0,  # it was restarted, and has sent one since
        ("low", "notification"): 3.0,
    }


def test_average_is_weighted_with_time() -> None:
    average = Average()
    assert average.value is None
    average.add(10 * 2.0, 2.0)  # ten entries for two seconds
    average.add(40 * 1.0, 1.0)
    assert average.value == pytest.approx(20.0)


def test_look_takes_what_it_shows_from_the_metrics() -> None:
    look = BrokerCounters.of([
        ("brokerbed_routing_entries", {"broker": "a", "scope": "local"}, 3.0),
        ("brokerbed_routing_entries", {"broker": "a", "scope": "remote"}, 5.0),
        ("brokerbed_routing_entries", {"broker": "a", "scope": "advertisement"}, 6.0),
        ("brokerbed_session_queue_messages", {"broker": "a"}, 7.0),
        ("brokerbed_connections", {"broker": "a"}, 2.0),
        ("brokerbed_link_messages_total", {"broker": "a", "peer": "root", "kind": "subscribe"}, 11.0),
        ("brokerbed_messages_under_way", {"broker": "a"}, 13.0),
    ])  # fmt: skip
    assert look == BrokerCounters(3.0, 5.0, 7.0, 2.0, 6.0, {("root", "subscribe"): 11.0})
