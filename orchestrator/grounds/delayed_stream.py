"""The bytes in one direction of a delayed or narrow connection. It reads no clock; the relay asks what has arrived."""

from brokerbed.orchestrator.simulator.link_schedule import PIECE_BYTES, LinkSchedule, Quality

__all__ = ["DelayedStream", "Quality"]

END = b""  # the piece that stands for the end of the connection


class DelayedStream:
    """Bytes that were sent in one direction of a connection and have not arrived yet."""

    __slots__ = ("_schedule", "is_at_end")

    def __init__(self, quality: Quality) -> None:
        self._schedule = LinkSchedule[bytes](quality)
        self.is_at_end = False  # everything has arrived, and nothing will follow

    @property
    def size_bytes(self) -> int:
        return self._schedule.size_bytes

    @property
    def due_ns(self) -> int | None:
        """When the next piece arrives; None if nothing was sent."""
        return self._schedule.due_ns

    def send(self, data: memoryview, now_ns: int) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            piece = bytes(data[start : start + PIECE_BYTES])
            self._schedule.send(piece, len(piece), now_ns)

    def send_end(self, now_ns: int) -> None:
        self._schedule.send(END, 0, now_ns)

    def take(self, now_ns: int) -> bytes:
        """Returns what has arrived by now, and forgets it."""
        arrived = self._schedule.take(now_ns)
        if arrived:
            self.is_at_end = arrived[-1] == END
        return b"".join(arrived)

    def resume(self, now_ns: int) -> None:
        """Called when the direction was held (cut) and is free again."""
        self._schedule.resume(now_ns)

    def clear(self) -> None:
        self._schedule.clear()
