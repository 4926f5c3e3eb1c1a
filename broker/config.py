"""The settings of one broker, including a limit on everything that a peer could make grow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from brokerbed.broker.core.access import Access
from brokerbed.broker.core.passwords import Users
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.routing.registry import DEFAULT
from brokerbed.topics import SLASHES_MAX

Demand = Callable[[], int]  # draws the next service time in nanoseconds from a stream that the driver created


@dataclass(frozen=True)
class Admission:
    """Who may connect over a listener."""

    allow_anonymous: bool = True  # whether clients without a user name may connect
    users: Users | None = None  # None: there is no password file, and user names are not checked
    links_only: bool = False  # only links may connect, and only with a certificate for the name of their broker

    def may_log_in(self, user: str | None, has_access: bool) -> bool:
        if user is None:
            return self.allow_anonymous
        if self.users is not None:
            return user in self.users.passwords
        return has_access and self.allow_anonymous


@dataclass(frozen=True)
class BrokerConfig:
    name: str = "broker"
    incarnation: str = "1"  # how often the broker was started, or anything else that differs after every start
    address: str = ""  # where other brokers reach this one, HOST:PORT; empty: unknown
    id_token: str = field(
        default="", repr=False
    )  # makes assigned client ids unique across brokers and restarts, and hard to guess
    parent_user: str | None = None  # the user name with which the broker logs in at its parent
    parent_password: str | None = field(default=None, repr=False)
    parent_is_foreign: bool = False  # the parent is not a brokerbed broker and treats the link as an ordinary client
    is_testbed: bool = False  # publishers of an experiment put their identity into the payload, and it is logged
    routing: str = DEFAULT  # the name of an algorithm in broker/routing or in another package
    routing_parameters: Mapping[str, int] = field(default_factory=dict)  # of the algorithm; its defaults for others
    placement: PlacementConfig | None = None  # None: links stay where they are
    refresh_s: float = 0.0  # period of refreshes: entries are announced again, and those not repeated are dropped
    packet_bytes_max: int = 268_435_460  # incoming; this is MQTT's own maximum, so clients need not be told of it
    connect_bytes_max: int = 2**20  # size of a CONNECT; with all its fields at their largest it has some 650 000 bytes
    partial_bytes_max: int = 512 * 2**20  # buffered parts of incomplete packets, over all connections
    connections_max: int = 50_000
    connecting_max: int = 10_000  # connections that have not sent a complete CONNECT; then the oldest of them ends
    connecting_bytes_max: int = 64 * 2**20  # what these have sent, together
    connect_timeout_s: float = 10.0  # from TCP accept to a complete CONNECT, including TLS and WebSocket handshakes
    receive_maximum: int = 20  # unfinished QoS 1 and 2 messages that a client may send us; Mosquitto's default
    inflight_max: int = 1000  # unfinished QoS 1 and 2 messages that we send a client (its own maximum may be lower)
    topic_alias_maximum: int = 10  # topic aliases that a client may use towards us; Mosquitto's default
    output_bytes_max: int = 8 * 2**20  # for a client that reads too slowly; beyond that QoS 0 is dropped for it
    outputs_bytes_max: int = 512 * 2**20  # for all clients; beyond that the connections with most output end
    messages_per_s_max: float = 0.0  # from one client, which is read from later if it sends more; 0: no limit
    bytes_per_s_max: float = 0.0  # likewise
    keep_alive_max_s: int = 60  # for MQTT 5 clients, which can be told; 0: whatever the client asks for
    roaming: bool = True  # clients that connect elsewhere in the tree bring their sessions along
    move_timeout_s: float = 5.0  # how long they wait for that; 0: no longer than while all links are up
    session_expiry_max_s: int = 0xFFFF_FFFF  # this value means that sessions never expire
    queue_messages_max: int = 100_000  # messages waiting for one session
    queue_bytes_max: int = 64_000_000
    queues_bytes_max: int = 2**30  # messages waiting for all sessions of clients together
    queue_policy: str = "drop-oldest"  # or "reject": what happens to messages when a queue is full
    subscriptions_max: int = 200_000  # per session
    all_subscriptions_max: int = 1_000_000  # of all clients together
    retained_max: int = 1_000_000
    retained_bytes_max: int = 2**30  # topics and payloads of retained messages together
    levels_max: int = SLASHES_MAX + 1  # of a topic or filter; lower it where topics are short
    allow_anonymous: bool = True  # over listeners that are not in `listeners`; `users` likewise
    users: Users | None = field(default=None, repr=False)
    listeners: Mapping[str, Admission] = field(default_factory=dict)  # by name: those that have settings of their own
    access: Access | None = None  # None: every client may publish and subscribe to everything
    link_secret: bytes | None = field(default=None, repr=False)  # both ends of a link must know it; see link_proof.py
    service_in: Demand | None = None  # emulated service time at the broker's input
    service_link: Demand | None = None  # emulated service time at the output of every link
    service_per_copy: bool = False  # at input and links, copy0/..., copy1/... and all other topics have their own stage
    session_service: Mapping[str, Demand] = field(default_factory=dict)  # emulated service at outputs, by client id

    def admission(self, listener: str) -> Admission:
        return self.listeners.get(listener) or Admission(self.allow_anonymous, self.users)

    @property
    def _admissions(self) -> list[Admission]:
        return [self.admission(""), *(it for it in self.listeners.values() if not it.links_only)]

    @property
    def distinguishes_users(self) -> bool:
        return self.access is not None or any(it.users is not None for it in self._admissions)

    @property
    def proves_links(self) -> bool:
        """Whether links are accepted only if they prove what they are."""
        return self.link_secret is not None or any(it.links_only for it in self.listeners.values())

    @property
    def lets_clients_in(self) -> bool:
        return any(it.allow_anonymous or it.users is not None for it in self._admissions)

    def may_log_in(self, user: str | None) -> bool:
        """Whether a client with this user name, or without one if None, could connect with these settings."""
        return any(it.may_log_in(user, self.access is not None) for it in self._admissions)
