"""What a broker counts besides the messages over its links."""

from dataclasses import dataclass, field

from brokerbed.log.record import Reason

# why a limit was applied: too many connections; unfinished CONNECTs, by number, size and time; unfinished packets;
# output that a client does not read; messages that wait for clients; subscriptions; retained messages; input that had
# to wait
SHED = (
    "connections", "connecting", "connecting_bytes", "connect_timeout", "partial_bytes", "output_bytes",
    "queues_bytes", "subscriptions", "retained", "rate",
)  # fmt: skip


@dataclass
class Counters:
    """Plain integers, which a Prometheus collector reads when it is scraped."""

    messages_received: int = 0
    messages_delivered: int = 0
    bytes_received: int = 0
    connections_total: int = 0
    protocol_errors: int = 0
    dropped: dict[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    expired: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("input", "link", "session"), 0))  # by place
    rejected: int = 0
    shed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SHED, 0))  # how often a limit was applied
    moves: int = 0  # how often this broker got another parent
    store_problems: int = 0  # how often the store became unwritable
    store_blocked: int = 0  # 1 while the store cannot be written

    @property
    def messages(self) -> int:
        """How many messages have come, also those that were refused because of a limit."""
        return self.messages_received + self.rejected
