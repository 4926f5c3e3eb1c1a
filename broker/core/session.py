"""Sessions: their subscriptions, the messages that wait for them, and those sent and not yet acknowledged.

A session belongs to a client or is one end of an overlay link. It outlives its connections.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core.link import EVERYBODY, MOVE_TOPIC, PACKET_IDS
from brokerbed.broker.core.run import Batch
from brokerbed.broker.values import LONG_AGO_NS, Entry, Message

if TYPE_CHECKING:
    from brokerbed.broker.config import Demand
    from brokerbed.broker.core.access import Access
    from brokerbed.broker.core.advertisements import Publisher
    from brokerbed.broker.core.connection import Connection
    from brokerbed.broker.core.link import Link
    from brokerbed.broker.core.moving import Moving
    from brokerbed.broker.core.subscriptions import Subscription
    from brokerbed.broker.core.timers import Timer


class Delivery:
    """One message to be delivered to one session."""

    __slots__ = (
        "answers",
        "expiry_timer",
        "has_waited",
        "identifiers",
        "is_held",
        "is_released",
        "message",
        "packet_id",
        "qos",
        "queued_at_ns",
        "retain",
        "row_number",
        "session_row",
    )  # fmt: skip

    def __init__(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], answers: Entry | None = None
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.answers = answers  # the child's subscription that is answered by sending a retained message down a link
        self.has_waited = False  # True: the log already has a QUEUED record of this delivery
        self.queued_at_ns = LONG_AGO_NS  # when it was queued, if that was since the broker's last start
        self.expiry_timer: Timer | None = None  # while it waits in a queue: drops it when its time is over
        self.packet_id = 0  # assigned when the message is first sent, and kept when it is sent again
        self.row_number = 0  # of the delivery's row in the store; 0: it has none
        self.session_row = 0  # number of its session's row in the store
        self.is_released = False  # at QoS 2: PUBREC was received and PUBREL was sent
        self.is_held = False  # it waits behind what still comes from another broker, see moving_queue.py

    @property
    def is_notice(self) -> bool:
        """Whether it is no notification, but a notice that brokers exchange while a link or a session moves."""
        return self.message.topic == MOVE_TOPIC


class RunRow:
    """The row in the store of a SentRun."""

    __slots__ = ("number", "unacknowledged")

    def __init__(self, number: int, unacknowledged: int) -> None:
        self.number = number
        self.unacknowledged = unacknowledged  # how many of the messages; without any, the row is removed


class SentRun:
    """Messages of a run that were sent to one session at QoS 1 or 2 and are not acknowledged, or not completely.

    They are `count` messages of the run from number `start` on, with consecutive packet ids from `first_id` on. The
    object stands in `Session.inflight` under every id that is in use.
    """

    __slots__ = ("_released", "count", "first_id", "is_released", "publisher", "qos", "row", "run", "start")

    def __init__(self, run: Batch, qos: int, first_id: int, start: int, count: int, publisher: object) -> None:
        self.run = run
        self.qos = qos
        self.first_id = first_id
        self.start = start
        self.count = count
        self.publisher = publisher
        self.is_released = False  # at QoS 2: PUBREC was received and PUBREL was sent
        self.row: RunRow | None = None  # if the session is stored
        self._released: SentRun | None = None

    def released(self) -> "SentRun":
        """The same messages, for those of them of which PUBREL was sent."""
        if self._released is None:
            self._released = SentRun(self.run, self.qos, self.first_id, self.start, self.count, self.publisher)
            self._released.is_released, self._released.row = True, self.row
        return self._released

    def delivery(self, packet_id: int) -> Delivery:
        """One of its messages as a delivery of its own."""
        message = self.run.message(packet_id - self.first_id + self.start, self.publisher)
        delivery = Delivery(message, self.qos, False, ())
        delivery.packet_id, delivery.is_released = packet_id, self.is_released
        return delivery


class Session:
    __slots__ = (
        "access", "claimed", "client_id", "connection", "demand", "expires_at_ns", "expiry_s", "expiry_timer",
        "has_service", "ids_reserved", "inflight", "is_clean", "is_ordered", "link", "log_number", "move", "next_id",
        "parked", "publisher", "queue", "queue_bytes", "received",
        "received_rows", "row_number", "service_due_ns", "service_left_ns", "subscriptions",
        "user", "will", "will_timer",
    )  # fmt: skip

    def __init__(self, client_id: str, demand: "Demand | None", is_staged: bool = False) -> None:
        self.client_id = client_id
        self.connection: Connection | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.queue: deque[Delivery] = deque()  # deliveries waiting to be sent, oldest first
        self.queue_bytes = 0
        # by packet id: sent at QoS 1 or 2 and not acknowledged, oldest first
        self.inflight: dict[int, Delivery | SentRun] = {}
        self.parked: dict[int, None] = {}  # packet ids of unacknowledged messages in the queue, and of announcements
        self.next_id = 1
        self.ids_reserved = 0  # how many packet ids from `next_id` on; for links only, see persist.take_packet_id
        self.received: dict[int, int] = {}  # unreleased QoS 2 messages: packet id -> number of the row, or 0
        self.received_rows: dict[int, Sequence[int]] = {}  # number of such a row -> packet ids that it had at first
        self.expiry_s = 0
        self.expires_at_ns: int | None = None  # None while the session is connected
        self.will: mqtt5.Will | None = None  # set while it waits for the will delay
        self.will_timer: Timer | None = None
        self.expiry_timer: Timer | None = None
        self.demand = demand  # emulated service time at this session's output
        # Every message for it is handled alone: it has emulated service, or it moves.
        self.has_service = demand is not None or is_staged  # `is_staged`: a link has emulated service before its queue
        self.service_due_ns: int | None = None  # while connected: when the service of the current message ends
        self.service_left_ns: int | None = None  # while disconnected: remaining service time of the current message
        self.log_number = -1
        self.row_number = 0  # of the session's row; 0: there is no store, or the session ends with its connection
        self.link: Link | None = None  # set if the session is one end of an overlay link
        self.publisher: Publisher | None = None  # set once a client has advertised something
        self.user: str | None = None  # the owner of the session, if the broker distinguishes users
        self.access: Access | None = None  # the access rules for the client; None: it may do everything
        self.is_ordered = False  # at QoS 0, too, nothing overtakes what waits in the queue: it has moved
        self.move: Moving | None = None  # while the session of a client moves to another broker
        self.claimed: tuple[int, str] = (0, "")  # when and where its client connected last, see session_claims.py
        self.is_clean = False  # it began with a clean start, so its client does not want what another broker may have

    def take_id(self) -> int:
        """Take a packet id that is not in use. The send windows keep the number in use far below PACKET_IDS."""
        packet_id = self.next_id
        while packet_id in self.inflight or packet_id in self.parked:
            assert len(self.inflight) + len(self.parked) < PACKET_IDS, "all packet ids are in use"
            packet_id = packet_id % PACKET_IDS + 1
        self.ids_reserved -= (packet_id - self.next_id) % PACKET_IDS + 1
        self.next_id = packet_id % PACKET_IDS + 1
        return packet_id

    def take_ids(self, count: int) -> int:
        """The first of so many consecutive packet ids that are not in use; 0 if the next ones are."""
        first_id = self.next_id if self.next_id + count <= PACKET_IDS + 1 else 1
        packet_ids = range(first_id, first_id + count)
        if self.inflight and not self.inflight.keys().isdisjoint(packet_ids):
            return 0
        if self.parked and not self.parked.keys().isdisjoint(packet_ids):
            return 0
        self.next_id = (first_id + count - 1) % PACKET_IDS + 1
        return first_id

    def push(self, delivery: Delivery) -> None:
        self.queue.append(delivery)
        self.queue_bytes += delivery.message.size

    def park(self, window: int) -> None:
        """Move unacknowledged deliveries that exceed a new connection's window back to the front of the queue."""
        excess = [item for item in self.inflight.items() if not item[1].is_released][window:]
        for packet_id, delivery in reversed(excess):
            assert isinstance(delivery, Delivery)
            del self.inflight[packet_id]
            self.parked[packet_id] = None
            self.queue.appendleft(delivery)
            self.queue_bytes += delivery.message.size

    def pop(self) -> Delivery:
        delivery = self.queue.popleft()
        self.queue_bytes -= delivery.message.size
        return delivery

    def remove(self, delivery: Delivery) -> None:
        self.queue.remove(delivery)
        self.queue_bytes -= delivery.message.size

    def pop_unsent(self) -> Delivery | None:
        """Remove and return the oldest delivery that was never sent; None if there is none.

        A delivery that was sent stays, because the client may still use its packet id. So do notices between brokers.
        """
        for index in range(len(self.queue)):
            delivery = self.queue[index]
            if not delivery.packet_id and not delivery.is_notice:
                del self.queue[index]
                self.queue_bytes -= delivery.message.size
                return delivery
        return None


def is_from(publisher: object, neighbour: str) -> bool:
    """Whether a message came over the link to this neighbour. EVERYBODY stands for any publisher."""
    if neighbour == EVERYBODY:
        return True
    return isinstance(publisher, Session) and publisher.link is not None and publisher.link.peer == neighbour
