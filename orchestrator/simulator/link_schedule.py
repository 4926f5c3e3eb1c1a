"""When what is sent over a delayed or narrow link arrives: one schedule for relays and for the simulator's wires. Pure.

What is sent is cut into pieces of at most PIECE_BYTES. A piece is sent when the one before it is, which takes its bits
divided by the bandwidth, and arrives one delay later, but never before the one before it.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from brokerbed.broker.config import Demand
from brokerbed.broker.values import NS_PER_S

PIECE_BYTES = 1460  # what one packet of TCP carries on Ethernet
T = TypeVar("T")


class Quality(NamedTuple):
    """The delay and bandwidth of one direction of a link."""

    delay: Demand | None = None  # draws nanoseconds
    bandwidth_bit_per_s: float | None = None


def piece_sizes(size_bytes: int) -> Iterator[int]:
    for start in range(0, size_bytes, PIECE_BYTES):
        yield min(PIECE_BYTES, size_bytes - start)


class LinkSchedule(Generic[T]):
    """The pieces under way in one direction of a connection, and when each of them arrives."""

    __slots__ = ("_free_ns", "_last_ns", "_pieces", "_quality", "crossed_bytes", "size_bytes")

    def __init__(self, quality: Quality) -> None:
        self._quality = quality
        self._pieces: deque[tuple[int, int, T]] = deque()  # when it arrives, its size, and the piece
        self._free_ns: int | None = None  # until when the bandwidth is used
        self._last_ns: int | None = None  # when the last piece arrives
        self.size_bytes = 0
        self.crossed_bytes = 0  # that have arrived so far

    @property
    def due_ns(self) -> int | None:
        """When the next piece arrives."""
        return self._pieces[0][0] if self._pieces else None

    def send(self, piece: T, size_bytes: int, now_ns: int) -> int:
        """Sends a piece, and returns when it will arrive."""
        delay, bandwidth = self._quality
        due_ns = now_ns
        if bandwidth is not None:
            start_ns = now_ns if self._free_ns is None else max(now_ns, self._free_ns)
            due_ns = self._free_ns = start_ns + round(8 * size_bytes * NS_PER_S / bandwidth)
        if delay is not None:
            due_ns += delay()
        return self._append(due_ns, size_bytes, piece)

    def _append(self, due_ns: int, size_bytes: int, piece: T) -> int:
        self._last_ns = due_ns if self._last_ns is None else max(due_ns, self._last_ns)
        self._pieces.append((self._last_ns, size_bytes, piece))
        self.size_bytes += size_bytes
        return self._last_ns

    def take(self, now_ns: int) -> list[T]:
        """Returns the pieces that have arrived by now."""
        pieces, arrived = self._pieces, []
        while pieces and pieces[0][0] <= now_ns:
            _, size_bytes, piece = pieces.popleft()
            self.size_bytes -= size_bytes
            self.crossed_bytes += size_bytes
            arrived.append(piece)
        return arrived

    def resume(self, now_ns: int) -> list[int]:
        """The link was cut until now: what reached the cut meanwhile is sent anew, and nothing overtakes it.

        Returns when the pieces under way will arrive.
        """
        pieces = self._pieces
        self.clear()
        return [
            self.send(piece, size_bytes, now_ns) if due_ns <= now_ns else self._append(due_ns, size_bytes, piece)
            for due_ns, size_bytes, piece in pieces
        ]

    def clear(self) -> None:
        """Discards what is under way."""
        self._pieces, self._last_ns, self.size_bytes = deque(), None, 0
