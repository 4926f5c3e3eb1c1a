"""How fast one client may send: a limit on messages and one on bytes per second."""

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.values import NS_PER_S

BURST_NS = NS_PER_S  # a client that was silent for so long may send at once what it could have sent in that time
SLICE_S = 0.05  # what is handled before the next look takes about so long at the client's rate
SLICE_BYTES_MIN, SLICE_BYTES_MAX = 256, 64 * 1024
MESSAGE_BYTES = 32  # of a short message, for the size of a slice


class Pace:
    """Adds up the time that a client's input takes at its rate, and says how far that is ahead of the clock."""

    __slots__ = ("_ns_per_byte", "_ns_per_message", "_paid_until_ns", "slice_bytes")

    @classmethod
    def of(cls, config: BrokerConfig) -> "Pace | None":
        """None if clients may send as fast as they can."""
        if not (config.messages_per_s_max or config.bytes_per_s_max):
            return None
        return cls(config.messages_per_s_max, config.bytes_per_s_max)

    def __init__(self, messages_per_s: float, bytes_per_s: float) -> None:
        """0 means that there is no such limit."""
        self._ns_per_message = NS_PER_S / messages_per_s if messages_per_s else 0.0
        self._ns_per_byte = NS_PER_S / bytes_per_s if bytes_per_s else 0.0
        self._paid_until_ns = 0
        wanted = [rate * SLICE_S for rate in (messages_per_s * MESSAGE_BYTES, bytes_per_s) if rate]
        self.slice_bytes = int(max(SLICE_BYTES_MIN, min(SLICE_BYTES_MAX, *wanted)))

    def delay_ns(self, size: int, messages: int, now_ns: int) -> int:
        """Count input of this size; returns for how long nothing may be read."""
        cost_ns = max(size * self._ns_per_byte, messages * self._ns_per_message)
        self._paid_until_ns = max(self._paid_until_ns, now_ns - BURST_NS) + round(cost_ns)
        return max(0, self._paid_until_ns - now_ns)
