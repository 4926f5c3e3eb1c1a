"""Where peers that roam are: at first anywhere, and then each time at another place, all equally likely."""

from collections import Counter
from itertools import islice, pairwise

import pytest

from brokerbed.clients.whereabouts import Whereabouts
from brokerbed.clients.workload import places, stream

BROKERS = ("b3", "b7", "b9")


def test_peer_comes_back_at_any_other_place_equally_often() -> None:
    visited = list(islice(places(BROKERS, stream(1, "places", "s1")), 60_001))
    steps = Counter(pairwise(visited))
    assert all(before != after for before, after in steps)
    assert len(steps) == 6
    for count in steps.values():
        assert count == pytest.approx(10_000, rel=0.05)  # 6 sigma of a binomial


def test_peer_begins_anywhere() -> None:
    first = Counter(next(places(BROKERS, stream(seed, "places", "s1"))) for seed in range(6_000))
    for broker in BROKERS:
        assert first[broker] == pytest.approx(2_000, rel=0.1)


def test_places_are_the_same_for_the_same_seed() -> None:
    again = [list(islice(places(BROKERS, stream(7, "places", "s1")), 50)) for _ in range(2)]
    assert again[0] == again[1]


def test_clients_are_found_where_they_are_now() -> None:
    clients = Whereabouts[str]()
    for name, broker in (("s1", "b0"), ("s2", "b0"), ("p1", "b1")):
        clients.add(name, broker)
    clients.move("s1", "b0", "b1")
    assert (clients.at("b0"), clients.at("b1"), clients.at("b2")) == (["s2"], ["p1", "s1"], [])
    assert list(clients.brokers_with(lambda name: name == "s1")) == ["b1"]
