"""What subscribing peers have seen so far, for those who watch a run while it goes on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from brokerbed.clients.workload import messages
from brokerbed.scenario.format import Publisher


@dataclass
class Seen:
    """Of one publisher's messages; they come in order, but some may be lost and some come again."""

    times: Iterator[tuple[int, int]]  # when they were made, one after the other
    number: int = 0  # of the last one
    count: int = 0
    delay_ns: int = 0  # of all together

    def note(self, number: int, now_ns: int, since_ns: int = 0) -> None:
        """What was made before `since_ns` is not counted."""
        if number <= self.number:
            return
        made_ns, _ = next(islice(self.times, number - self.number - 1, None))
        self.number = number
        if made_ns >= since_ns:
            self.count += 1
            self.delay_ns += now_ns - made_ns


class Sight:
    """Of one subscribing peer. Messages do not tell when they were made; but the seed does."""

    def __init__(self, seed: int, publishers: Mapping[str, Publisher]) -> None:
        self._seed = seed
        self._publishers = publishers
        self.of: dict[str, Seen] = {}
        self.since_ns = 0

    def note(self, publisher: str, number: int, now_ns: int) -> None:
        seen = self.of.get(publisher)
        if seen is None:
            peer = self._publishers.get(publisher)
            if peer is None:  # that of a class
                return
            seen = self.of[publisher] = Seen(messages(self._seed, publisher, peer.rate))
        seen.note(number, now_ns, self.since_ns)
