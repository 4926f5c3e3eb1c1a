"""Delivery counts and delays that subscribers have observed so far, for the live page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from brokerbed.clients.workload import messages
from brokerbed.scenario.peers import Publisher


@dataclass
class PublisherStats:
    """Deliveries of one publisher's messages. They arrive in order, but some may be lost and some may arrive again."""

    publication_times: Iterator[tuple[int, int]]  # of successive messages
    last_number: int = 0
    count: int = 0
    delay_sum_ns: int = 0

    def add(self, number: int, now_ns: int, since_ns: int = 0) -> None:
        """Adds a delivery. Messages that were published before `since_ns` are not counted."""
        if number <= self.last_number:
            return
        published_ns, _ = next(islice(self.publication_times, number - self.last_number - 1, None))
        self.last_number = number
        if published_ns >= since_ns:
            self.count += 1
            self.delay_sum_ns += now_ns - published_ns


class DeliveryStats:
    """Delivery counts and delays observed by one receiver. Publication times are recomputed from the seed.

    The delay of an answer counts from its request, as the requester made it at a time that follows from the seed.
    """

    def __init__(self, seed: int, publishers: Mapping[str, Publisher]) -> None:
        self._seed = seed
        self._publishers = publishers
        self.by_publisher: dict[str, PublisherStats] = {}
        self.since_ns = 0

    def add(self, publisher: str, number: int, now_ns: int) -> None:
        stats = self.by_publisher.get(publisher)
        if stats is None:
            peer = self._publishers.get(publisher)
            if peer is None:  # the publisher of a class
                return
            times = messages(self._seed, peer.cause, peer.rate, peer.arrivals)
            stats = self.by_publisher[publisher] = PublisherStats(times)
        stats.add(number, now_ns, self.since_ns)
