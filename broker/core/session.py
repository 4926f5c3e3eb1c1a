"""One client's session: its subscriptions, what waits for it and what is under way. Survives its connections."""

from collections import deque
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core.link import PACKET_IDS
from brokerbed.broker.values import Entry, Message

if TYPE_CHECKING:
    from brokerbed.broker.config import Demand
    from brokerbed.broker.core.access import Access
    from brokerbed.broker.core.connection import Connection
    from brokerbed.broker.core.link import Link
    from brokerbed.broker.core.subscriptions import Subscription
    from brokerbed.broker.core.timers import Timer

LONG_AGO_NS = -(1 << 62)


class Delivery:
    """One message for one session."""

    __slots__ = (
        "answers", "has_waited", "identifiers", "is_released", "message", "number", "packet_id", "qos", "retain",
        "session", "since_ns",
    )  # fmt: skip

    def __init__(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], answers: Entry | None = None
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.answers = answers  # the child's subscription for which a retained message is sent down a link
        self.has_waited = False  # the log says that it was queued
        self.since_ns = LONG_AGO_NS  # when it was, in this life of the broker
        self.packet_id = 0  # since it was sent, or was about to be
        self.number = 0  # of its row in the store; 0: it has none
        self.session = 0  # the number of its session's row
        self.is_released = False  # QoS 2: PUBREC has come, PUBREL is out


class Session:
    __slots__ = (
        "access", "client_id", "connection", "demand", "expires_at_ns", "expiry_s", "expiry_timer", "has_service",
        "ids_reserved", "inflight", "link", "log_number", "next_id", "number", "parked", "queue", "queue_bytes",
        "received", "service_due_ns", "service_left_ns", "subscriptions", "user", "will", "will_timer",
    )  # fmt: skip

    def __init__(self, client_id: str, demand: "Demand | None", is_staged: bool = False) -> None:
        self.client_id = client_id
        self.connection: Connection | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.queue: deque[Delivery] = deque()  # not sent yet, oldest first
        self.queue_bytes = 0
        self.inflight: dict[int, Delivery] = {}  # sent at QoS 1 or 2 and not acknowledged, oldest first
        self.parked: dict[int, None] = {}  # packet ids of messages that wait to be sent again
        self.next_id = 1
        self.ids_reserved = 0  # from `next_id` on, see persist.take_packet_id; counted for links only
        self.received: dict[int, int] = {}  # QoS 2 messages the client has not released: packet id -> row, or 0
        self.expiry_s = 0
        self.expires_at_ns: int | None = None  # while disconnected
        self.will: mqtt5.Will | None = None  # waits for its delay
        self.will_timer: Timer | None = None
        self.expiry_timer: Timer | None = None
        self.demand = demand  # emulated service at this session's output
        self.has_service = demand is not None or is_staged  # or there is such service before its queue, as for links
        self.service_due_ns: int | None = None  # when the message in service is done, while connected
        self.service_left_ns: int | None = None  # how much service is left to it, while disconnected
        self.log_number = -1
        self.number = 0  # of its row in the store; 0: it ends with its connection, or there is no store
        self.link: Link | None = None  # for a session that is one end of an overlay link
        self.user: str | None = None  # to whom it belongs, where users are told apart
        self.access: Access | None = None  # the rules that its client is subject to; None: it may do everything

    def take_id(self) -> int:
        """A packet id that is not in use. Windows keep the number of those in use far below PACKET_IDS."""
        packet_id = self.next_id
        while packet_id in self.inflight or packet_id in self.parked:
            assert len(self.inflight) + len(self.parked) < PACKET_IDS, "all packet ids are in use"
            packet_id = packet_id % PACKET_IDS + 1
        self.ids_reserved -= (packet_id - self.next_id) % PACKET_IDS + 1
        self.next_id = packet_id % PACKET_IDS + 1
        return packet_id

    def deliveries(self) -> list[Delivery]:
        """All that this session is still to get, or to acknowledge."""
        staged = self.link.staged if self.link is not None else ()
        return [*self.inflight.values(), *staged, *self.queue]

    def push(self, delivery: Delivery) -> None:
        self.queue.append(delivery)
        self.queue_bytes += delivery.message.size

    def park(self, window: int) -> None:
        """Back to the front of the queue with what was sent and does not fit the window of a new connection."""
        late = [item for item in self.inflight.items() if not item[1].is_released][window:]
        for packet_id, delivery in reversed(late):
            del self.inflight[packet_id]
            self.parked[packet_id] = None
            self.queue.appendleft(delivery)
            self.queue_bytes += delivery.message.size

    def pop(self) -> Delivery:
        delivery = self.queue.popleft()
        self.queue_bytes -= delivery.message.size
        return delivery

    def pop_unsent(self) -> Delivery | None:
        """The oldest delivery that was never sent: of one that was, the client may still hold the packet id."""
        for index in range(len(self.queue)):
            delivery = self.queue[index]
            if not delivery.packet_id:
                del self.queue[index]
                self.queue_bytes -= delivery.message.size
                return delivery
        return None
