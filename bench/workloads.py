"""The workloads of the load generator: who publishes what to whom, and how many messages are under way."""

from dataclasses import dataclass

from bench import packets

PAYLOAD = bytes(range(64))
WINDOW_MESSAGES = 1000
NAP_S = 0.0005  # otherwise a broker that writes single messages spends half its time waking us up
CYCLE_MESSAGES_MIN = 1000  # short cycles would need many small writes
GROUPS_MAX = 1000  # topics have three digits for it
SHARE = "$share/bench/"


@dataclass(frozen=True)
class Workload:
    """Groups of clients that do the same. A group has topics, publishers, subscribers and a window of its own."""

    groups: int = 1
    publishers: int = 1
    subscribers: int = 1
    is_shared: bool = False  # the subscribers share one subscription: each message goes to one of them
    qos: int = 0
    level: int = packets.LEVEL_311
    window: int = WINDOW_MESSAGES  # of all publishers of a group together
    batch: int = 1  # publishers wait until they can send this many messages at once
    topics: int = 1  # every message goes to the next one
    has_exact_filters: bool = False  # a subscription for every topic instead of one with a wildcard
    nap_s: float = 0.0  # after a receipt that does not make room for a batch
    rate_per_s: float = 0.0  # of all groups together, whatever the broker does; 0: as many as the windows allow
    is_durable: bool = False  # sessions are persistent
    offline: int = 0  # the maximum number of messages published before the subscriber connects

    def __post_init__(self) -> None:
        assert self.qos < 2 or self.level == packets.LEVEL_311  # in MQTT 5 handshakes have no constant length
        assert self.batch <= self.window
        assert self.groups <= GROUPS_MAX
        assert self.cycle_messages <= packets.PACKET_ID_MAX

    @property
    def is_round_trip(self) -> bool:
        return self.groups == self.window == 1

    @property
    def copies(self) -> int:
        """Deliveries of one message."""
        return 1 if self.is_shared else self.subscribers

    @property
    def cycle_messages(self) -> int:
        """Ready packets of a group, which are sent cyclically: no packet id may return while it is under way."""
        least = max(2 * self.window, CYCLE_MESSAGES_MIN)
        return -(-least // self.topics) * self.topics

    def stream(self, group: int) -> bytes:
        """The ready packets; at QoS 1 and 2 each has an identifier of its own."""
        return b"".join(
            packets.publish(topic(i % self.topics, group), PAYLOAD, self.qos, i + 1, self.level)
            for i in range(self.cycle_messages)
        )

    def filters(self, group: int) -> list[str]:
        prefix = SHARE if self.is_shared else ""
        if self.topics == 1 or self.has_exact_filters:
            return [prefix + topic(i, group) for i in range(self.topics)]
        return [f"{prefix}bench/{group:03d}/+"]


def topic(index: int, group: int = 0) -> str:
    """All topics have one length, so that all packets have."""
    return f"bench/{group:03d}/{index:05d}"


WORKLOADS = {
    "one-to-one": Workload(batch=100, nap_s=NAP_S),
    "one-to-one-v5": Workload(batch=100, nap_s=NAP_S, level=packets.LEVEL_5),
    "topics-wild": Workload(topics=1000, batch=100, nap_s=NAP_S),
    "topics-exact": Workload(topics=1000, has_exact_filters=True, batch=100, nap_s=NAP_S),
    "fan-out-50": Workload(subscribers=50, window=200),
    "fan-in-20": Workload(publishers=20, batch=25, nap_s=NAP_S),
    "pairs-20": Workload(groups=100, window=20),
    "pairs-1": Workload(groups=100, window=1),
    "pairs-20-qos1": Workload(groups=100, window=20, qos=1),
    "pairs-1-qos1": Workload(groups=100, window=1, qos=1),
    "qos1": Workload(window=100, qos=1),
    "qos2": Workload(window=20, qos=2),
    "fan-out-1000-qos1": Workload(subscribers=1000, window=10, qos=1),
    "shared-qos1": Workload(
        publishers=10, subscribers=10, is_shared=True, window=200, batch=5, qos=1, level=packets.LEVEL_5
    ),
    "latency": Workload(groups=10, rate_per_s=5000),
    "latency-qos1": Workload(groups=10, rate_per_s=5000, qos=1),
    "round-trip": Workload(window=1),
    "round-trip-v5": Workload(window=1, level=packets.LEVEL_5),
    "mixed": Workload(topics=100, batch=100, nap_s=NAP_S),
    "mixed-v5": Workload(topics=100, batch=100, nap_s=NAP_S, level=packets.LEVEL_5),
    "many-topics": Workload(topics=50_000, batch=100, nap_s=NAP_S),
    "durable-20": Workload(qos=1, window=20, batch=10, is_durable=True),
    "durable-100": Workload(qos=1, window=100, batch=50, is_durable=True),
    "durable-qos2": Workload(qos=2, window=20, batch=10, is_durable=True),
    "durable-offline": Workload(qos=1, window=100, batch=50, is_durable=True, offline=20_000),
}
