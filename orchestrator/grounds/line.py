"""When the bytes on a slow or narrow way arrive: the schedule, which is that of the simulator's wires.

It reads no clock and moves no bytes; the relay asks it what is due.
"""

from collections import deque
from typing import NamedTuple

from broker.config import Demand
from broker.values import NS_PER_S

PIECE_BYTES = 1460  # what one packet of TCP carries on Ethernet


class Quality(NamedTuple):
    """Of one way of a link."""

    delay: Demand | None = None  # draws nanoseconds of wall time
    bandwidth_bit_per_s: float | None = None


class Line:
    """What is under way. It arrives in order, and each piece when the one before is sent, plus the delay."""

    __slots__ = ("_free_ns", "_last_ns", "_pieces", "_quality", "is_at_end", "size_bytes")

    def __init__(self, quality: Quality) -> None:
        self._quality = quality
        self._pieces: deque[tuple[int, bytes]] = deque()  # due when; an empty one is the end
        self._free_ns = 0  # the bandwidth is used until then
        self._last_ns = 0  # nothing overtakes what arrives then
        self.size_bytes = 0
        self.is_at_end = False  # all has arrived, and nothing will follow

    @property
    def due_ns(self) -> int | None:
        """When the next piece arrives."""
        return self._pieces[0][0] if self._pieces else None

    def send(self, data: memoryview, now_ns: int) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            self._put(bytes(data[start : start + PIECE_BYTES]), now_ns)
        self.size_bytes += len(data)

    def send_end(self, now_ns: int) -> None:
        self._put(b"", now_ns)

    def _put(self, piece: bytes, now_ns: int) -> None:
        delay, bandwidth = self._quality
        due_ns = now_ns
        if bandwidth is not None:
            due_ns = self._free_ns = max(now_ns, self._free_ns) + round(8 * len(piece) * NS_PER_S / bandwidth)
        if delay is not None:
            due_ns += delay()
        self._last_ns = max(due_ns, self._last_ns)
        self._pieces.append((self._last_ns, piece))

    def take(self, now_ns: int) -> bytes:
        """What has arrived."""
        pieces = self._pieces
        arrived = []
        while pieces and pieces[0][0] <= now_ns:
            arrived.append(pieces.popleft()[1])
        if not arrived:
            return b""
        self.is_at_end = not arrived[-1]
        data = b"".join(arrived)
        self.size_bytes -= len(data)
        return data

    def resume(self, now_ns: int) -> None:
        """The way was held until now: what came to the cut meanwhile is sent anew, and nothing overtakes it."""
        pieces, self._pieces = self._pieces, deque()
        self._last_ns = 0
        for due_ns, piece in pieces:
            if due_ns <= now_ns:
                self._put(piece, now_ns)
            else:
                self._last_ns = max(due_ns, self._last_ns)
                self._pieces.append((self._last_ns, piece))

    def clear(self) -> None:
        self._pieces.clear()
        self.size_bytes = 0
