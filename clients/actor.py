"""What acts in a run: one or several clients of a part of the workload, and the MQTT clients through which it acts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from brokerbed.broker.values import NO_PROPERTIES, Message, Properties
from brokerbed.clients.session import Client
from brokerbed.scenario.peers import Publisher

Received = Callable[[str, bytes, int, Properties], None]  # topic, payload, QoS, properties
NewClient = Callable[[str, str, bool], Client]  # broker, client id, whether it starts with a clean session


class PeerClient(Protocol):
    """The MQTT client of a peer.

    It keeps its session, and reconnects until `disconnect` is called. The first four attributes are callbacks.
    """

    received: Received | None
    acknowledged: Callable[[Message], None] | None  # the broker has acknowledged a publication
    is_too_late: Callable[[Message], bool] | None  # asked before a message with a lifetime is sent; if so, it is not
    is_accepted_changed: Callable[[bool], None] | None  # the broker accepted the client, or the connection ended

    def connect(self) -> None: ...
    def disconnect(self) -> None:
        """Breaks the connection without a DISCONNECT. The client does not reconnect before `connect` is called."""

    @property
    def broker(self) -> str:
        """The name of the broker to which it connects."""

    def move_to(self, broker: str, /) -> None:
        """It connects to this broker from now on, with the same client id. Called while it is to be disconnected."""

    def subscribe(self, topic_filter: str, qos: int, /) -> None: ...
    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: Properties = NO_PROPERTIES,
        expires_at_ns: int | None = None,
        /,
    ) -> None:
        """Publishes a message, which dies at `expires_at_ns`, a time of the brokers' clock."""

    @property
    def is_connected(self) -> bool: ...
    @property
    def is_settled(self) -> bool:
        """It is in its intended state: not connected, or connected with every subscription confirmed."""

    @property
    def under_way(self) -> int:
        """Publications that were handed to the client and that the broker has not acknowledged."""

    @property
    def held(self) -> int:
        """Publications that wait although there is a connection."""

    @property
    def unsent_bytes(self) -> int:
        """How many bytes its socket has not accepted."""


NewPeer = Callable[[str, str], PeerClient]  # broker, client id


class Actor:
    """Does its part of the workload. A part overrides what it needs; the methods are called in this order."""

    def connect(self) -> None:
        """Brokers are up; connections are made now, and subscriptions that last."""

    def populate(self) -> None:
        """Makes the subscriptions of time zero, a little before time zero."""

    def watch(self, streams: Mapping[str, Publisher]) -> None:
        """Somebody watches the run: from now on delays are remembered."""

    def begin(self) -> None:
        """Starts the workload; called at time zero, or a little before."""

    def stop(self) -> None:
        """The measured time is over, and nothing new is to come. What waits must be able to arrive."""

    @property
    def clients(self) -> Sequence[PeerClient]:
        """All that it has made, so that the run can wait until they are connected and nothing is under way."""
        return ()
