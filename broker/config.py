"""What can be set on one broker, with the limits on everything that a peer could make grow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from brokerbed.broker.core.access import Access, Users

Demand = Callable[[], int]  # draws the next service time in nanoseconds, from a stream that the driver made


@dataclass(frozen=True)
class BrokerConfig:
    name: str = "broker"
    incarnation: str = "1"  # how often it was started, or anything else that tells its lives apart
    id_token: str = ""  # makes assigned client ids unique over brokers and restarts, and hard to guess
    parent_user: str | None = None  # with which it introduces itself to its parent
    parent_password: str | None = field(default=None, repr=False)
    parent_is_foreign: bool = False  # the parent is no broker of ours: the link is an ordinary user there
    is_testbed: bool = False  # publishers of an experiment have their identity in the payload, which is logged
    routing: str = "identity"  # the name of an algorithm of broker/routing, or of another package
    refresh_s: float = 0.0  # every so often all interest is repeated to the parent, and what is not repeated is dropped
    packet_bytes_max: int = 268_435_460  # incoming; the largest packet of MQTT, so that clients need not be told
    connect_bytes_max: int = 2**20  # of a CONNECT; one with all its fields at their largest has some 650 000 bytes
    partial_bytes_max: int = 512 * 2**20  # of packets whose end has not come yet, over all connections
    connections_max: int = 50_000
    connect_timeout_s: float = 10.0  # from TCP accept to a whole CONNECT, handshakes of TLS and WebSockets included
    receive_maximum: int = 20  # messages at QoS 1 and 2 that a client may have open with us, as with Mosquitto
    inflight_max: int = 1000  # messages at QoS 1 and 2 that we have open with a client (its own maximum may be lower)
    topic_alias_maximum: int = 10  # that a client may use towards us, as with Mosquitto
    keep_alive_max_s: int = 60  # of MQTT 5 clients, which can be told; 0: whatever the client asks for
    session_expiry_max_s: int = 0xFFFF_FFFF  # never
    queue_messages_max: int = 100_000  # waiting for one session
    queue_bytes_max: int = 64_000_000
    queue_policy: str = "drop-oldest"  # or "reject"
    subscriptions_max: int = 200_000  # of one session
    retained_max: int = 1_000_000
    allow_anonymous: bool = True  # clients without a user name
    users: Users | None = None  # None: nobody has a name, and names are not checked
    access: Access | None = None  # None: everybody may everything
    link_secret: bytes | None = field(default=None, repr=False)  # what both ends of a link must know; see link_proof.py
    service_in: Demand | None = None  # emulated service demand at the broker's input
    service_link: Demand | None = None  # ... at the output of every link
    service_per_copy: bool = False  # topics copy0/..., copy1/..., and all others, have stages of their own in both
    session_service: Mapping[str, Demand] = field(default_factory=dict)  # ... and per client id at its session's output

    @property
    def tells_users_apart(self) -> bool:
        return self.users is not None or self.access is not None

    def may_log_in(self, user: str | None) -> bool:
        """Whether a client of this user, or of no user, could connect with these settings."""
        if user is None:
            return self.allow_anonymous
        if self.users is not None:
            return user in self.users.passwords
        return self.access is not None and self.allow_anonymous
