"""A durable broker against a simple model: clients do what they like, and the broker dies between any two steps.

The model is a list per subscriber of what it must still get. Nothing that was stored is lost, nothing comes out of
order per publisher, topic and QoS, duplicates come at QoS 1 only and with the DUP flag, QoS 2 comes exactly once. After
every commit the rows of the store fit together (see DurableWorld); in the end only what is retained is left of messages.
"""

from collections import defaultdict
from collections.abc import Iterable

import mqtt5
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from brokerbed.broker.core import persist
from tests.core_client import FOREVER_S, NS_PER_S, Client
from tests.durable_world import DurableWorld

READERS = ("s0", "s1", "s2")
PUBLISHERS = ("p0", "p1")
PERISHABLE, SHARED = "perishable", "shared"  # topics
TOPICS = ("a", "a/b", "c", PERISHABLE, SHARED)
MATCHING = {"a": ("a", "a/#", "+"), "a/b": ("a/b", "a/#"), "c": ("c", "+"), PERISHABLE: (PERISHABLE, "+")}
FILTERS = ("a", "a/b", "c", "a/#", PERISHABLE)
GROUP = f"$share/group/{SHARED}"
FIRST_FILTERS = {"s0": {"a/#": 2, GROUP: 2}, "s1": {"a": 1, "a/b": 2, "c": 2, GROUP: 1}, "s2": {"a/#": 1, "a/b": 2}}
PERISHES_S = 5
EXPIRIES_S = (0, 10, FOREVER_S)  # of sessions
WINDOWS = (1, 2, 65_535)
LARGE = b"." * persist.INLINE_BYTES_MAX  # so that a message does not fit into the row of its delivery

Key = tuple[str, str, int, bool]  # publisher, topic, QoS, and whether it was sent because it is retained
Token = tuple[bytes, tuple[int, ...]]  # payload and subscription identifiers: distinguishes all deliveries


class Reader:
    """A subscriber that keeps its half of the QoS 2 state across connections, and what the model knows of it."""

    def __init__(self, world: DurableWorld, name: str) -> None:
        self.client = Client(world, name)
        self.expiry_s = 0
        self.expires_at_ns: int | None = None  # while it is offline
        self.forget()

    def forget(self) -> None:
        """The session has ended."""
        self.has_session = False
        self.filters: dict[str, tuple[int, int]] = {}  # filter -> QoS, subscription identifier
        self.expected: dict[Key, list[Token]] = defaultdict(list)
        self.got: dict[Key, list[Token]] = defaultdict(list)
        self.unreleased: set[int] = set()

    def lose_unread(self) -> None:
        """The connection is gone: what was on its way at QoS 0 is lost."""
        for key, expected in self.expected.items():
            if key[2] == 0:
                expected[:] = [token for token in expected if token in self.got[key]]

    def read(self, limit: int, answers: bool = True) -> None:
        for _ in range(limit):
            packet = self.client.read()
            if packet is None:
                return
            if isinstance(packet, mqtt5.PublishPacket):
                self._take(packet)
                if answers:
                    self.client.acknowledge(packet)
            elif isinstance(packet, mqtt5.PubRelPacket):
                self.unreleased.discard(packet.packet_id)
                if answers:
                    self.client.send(mqtt5.PubCompPacket(packet.packet_id))

    def _take(self, packet: mqtt5.PublishPacket) -> None:
        if not packet.payload:  # a retained message was removed
            return
        publisher, qos = packet.payload.partition(b":")[0].decode(), int(packet.qos)
        key: Key = (publisher, packet.topic, qos, packet.retain)
        token = (packet.payload, tuple(sorted(packet.subscription_ids)))
        if qos == 2:
            assert packet.packet_id is not None
            if packet.packet_id in self.unreleased:
                assert packet.duplicate
                assert token in self.got[key]
                return
            self.unreleased.add(packet.packet_id)
        elif token in self.got[key]:
            assert qos == 1
            assert packet.duplicate
            return
        self.got[key].append(token)


class Restarts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = DurableWorld(inflight_max=3)
        self.readers = {name: Reader(self.world, name) for name in READERS}
        self.publishers = {name: Client(self.world, name) for name in PUBLISHERS}
        self.retained: dict[str, tuple[str, bytes, int]] = {}  # topic -> publisher, payload, QoS
        self.perishing: dict[bytes, int] = {}  # payload -> when it expires
        self.group_due: dict[bytes, set[str]] = {}  # payload -> who may get it, and all of them are still there
        self.published = self.subscribed = 0
        for name, filters in FIRST_FILTERS.items():
            self.start_anew(name, FOREVER_S)
            for topic_filter, qos in filters.items():
                self.subscribe(name, topic_filter, qos)

    # -- connections and sessions -------------------------------------------------------------------------------

    @rule(name=st.sampled_from(READERS), expiry_s=st.sampled_from(EXPIRIES_S), window=st.sampled_from(WINDOWS))
    def resume(self, name: str, expiry_s: int, window: int) -> None:
        reader = self.readers[name]
        if reader.client.is_closed:
            answer = reader.client.connect(clean=False, expiry_s=expiry_s, receive_max=window)
            assert answer.session_present == reader.has_session
            reader.has_session, reader.expiry_s, reader.expires_at_ns = True, expiry_s, None

    @rule(name=st.sampled_from(READERS), expiry_s=st.sampled_from(EXPIRIES_S))
    def start_anew(self, name: str, expiry_s: int) -> None:
        reader = self.readers[name]
        if not reader.client.is_closed:
            reader.client.drop()
        self.end(name)
        assert not reader.client.connect(clean=True, expiry_s=expiry_s).session_present
        reader.has_session, reader.expiry_s, reader.expires_at_ns = True, expiry_s, None

    @rule(name=st.sampled_from(READERS), limit=st.integers(0, 8))
    def drop(self, name: str, limit: int) -> None:
        """The client still reads a little, but its answers get lost with the connection."""
        reader = self.readers[name]
        if not reader.client.is_closed:
            reader.read(limit, answers=False)
            reader.client.drop()
            self.offline(name)

    @rule(name=st.sampled_from(READERS))
    def disconnect_and_end_the_session(self, name: str) -> None:
        reader = self.readers[name]
        if not reader.client.is_closed:
            reader.client.send(mqtt5.DisconnectPacket(session_expiry_interval=0))
            self.end(name)

    @rule(seconds=st.sampled_from((1, 4, 11)))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)
        for name, reader in self.readers.items():
            if reader.expires_at_ns is not None and reader.expires_at_ns <= self.world.now_ns:
                self.end(name)

    @rule()
    def restart(self) -> None:
        online = [name for name, reader in self.readers.items() if not reader.client.is_closed]
        self.world.restart()
        self.restarted(online)

    def restarted(self, online: Iterable[str]) -> None:
        """Sessions that were connected have their whole expiry interval from now on."""
        for name in online:
            self.offline(name)

    def offline(self, name: str) -> None:
        reader = self.readers[name]
        reader.lose_unread()
        if reader.expiry_s == 0:
            self.end(name)
        elif reader.expiry_s != FOREVER_S:
            reader.expires_at_ns = self.world.now_ns + reader.expiry_s * NS_PER_S

    def end(self, name: str) -> None:
        self.readers[name].forget()
        self.readers[name].expires_at_ns = None
        self.group_due = {payload: members for payload, members in self.group_due.items() if name not in members}

    # -- subscriptions ------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(READERS), topic_filter=st.sampled_from((*FILTERS, GROUP)), qos=st.integers(0, 2))
    def subscribe(self, name: str, topic_filter: str, qos: int) -> None:
        reader = self.readers[name]
        if reader.client.is_closed:
            return
        if topic_filter == GROUP:
            qos = max(1, qos)  # at QoS 0 the member whose turn it is may be offline
        reader.read(10_000)  # so that the next packet is the SUBACK
        self.subscribed += 1
        granted = reader.client.subscribe(topic_filter, qos=qos, identifier=self.subscribed, retain_as_published=False)
        assert granted == [qos]
        reader.filters[topic_filter] = qos, self.subscribed
        for topic, (publisher, payload, published_qos) in self.retained.items():
            if topic_filter in MATCHING[topic]:
                key = publisher, topic, min(qos, published_qos), True
                reader.expected[key].append((payload, (self.subscribed,)))

    @rule(name=st.sampled_from(READERS), topic_filter=st.sampled_from((*FILTERS, GROUP)))
    def unsubscribe(self, name: str, topic_filter: str) -> None:
        reader = self.readers[name]
        if not reader.client.is_closed:
            reader.client.send_unsubscribe(topic_filter)
            reader.filters.pop(topic_filter, None)

    # -- messages -----------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(PUBLISHERS),
        topic=st.sampled_from(TOPICS),
        qos=st.integers(0, 2),
        is_large=st.booleans(),
        retain=st.booleans(),
        death=st.sampled_from((None,) * 8 + ("before", "after")),
    )
    def publish(self, name: str, topic: str, qos: int, is_large: bool, retain: bool, death: str | None) -> None:
        publisher = self.publishers[name]
        if publisher.is_closed:
            publisher.connect()
        self.published += 1
        payload = f"{name}:{self.published:06d}".encode() + LARGE * is_large
        retain = retain and topic in ("a", "a/b", "c")
        if death != "before":
            self.due(name, topic, payload, qos, retain)
        online = [name for name, reader in self.readers.items() if not reader.client.is_closed]
        if death is not None:
            self.world.die_at_commit(death)
        expiry_s = PERISHES_S if topic == PERISHABLE else None
        publisher.publish(topic, payload, qos, retain=retain, message_expiry_interval=expiry_s)
        if death is not None:
            self.world.restart()  # again, unless there was nothing to store
            self.restarted(online)
        else:
            publisher.read_all()
            if qos == 2:
                publisher.send(mqtt5.PubRelPacket(publisher.next_id))
                publisher.read_all()

    @rule(name=st.sampled_from(PUBLISHERS), topic=st.sampled_from(("a", "a/b", "c")))
    def remove_retained(self, name: str, topic: str) -> None:
        publisher = self.publishers[name]
        if publisher.is_closed:
            publisher.connect()
        publisher.publish(topic, b"", retain=True)
        self.retained.pop(topic, None)

    def due(self, name: str, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        """Every subscriber that wants it must get it, unless it is at QoS 0 and the subscriber cannot be reached."""
        if retain:
            self.retained[topic] = name, payload, qos
        if topic == PERISHABLE:
            self.perishing[payload] = self.world.now_ns + PERISHES_S * NS_PER_S
        if topic == SHARED:
            members = {name for name, reader in self.readers.items() if GROUP in reader.filters}
            if members and qos:
                self.group_due[payload] = members
            return
        for reader in self.readers.values():
            found = [reader.filters[it] for it in MATCHING[topic] if it in reader.filters]
            if found and ((granted := min(qos, max(found)[0])) or not reader.client.is_closed):
                identifiers = tuple(sorted(identifier for _, identifier in found))
                reader.expected[name, topic, granted, False].append((payload, identifiers))

    @rule(name=st.sampled_from(READERS), limit=st.integers(1, 8))
    def read(self, name: str, limit: int) -> None:
        if not self.readers[name].client.is_closed:
            self.readers[name].read(limit)

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def what_came_is_a_beginning_of_what_is_due(self) -> None:
        for reader in self.readers.values():
            for key, got in reader.got.items():
                if key[1] == SHARED:
                    assert got == sorted(got), "out of order"
                else:
                    assert self.is_right(reader.expected[key], got, is_all=False), key
        shared = [payload for reader in self.readers.values() for payload in self.got_shared(reader)]
        assert len(shared) == len(set(shared)), "two members of a group got the same message"

    def is_right(self, expected: list[Token], got: list[Token], is_all: bool) -> bool:
        """Whether somebody got what was expected, in order, or a part of it; what has expired may be missing."""
        count = 0
        for token in expected:
            if count == len(got) and not is_all:
                return True
            if count < len(got) and got[count] == token:
                count += 1
            elif self.perishing.get(token[0], self.world.now_ns + 1) > self.world.now_ns:
                return False
        return count == len(got)

    @staticmethod
    def got_shared(reader: Reader) -> list[bytes]:
        return [token[0] for key, got in reader.got.items() if key[1] == SHARED for token in got]

    def teardown(self) -> None:
        self.restart()
        for name, reader in self.readers.items():
            if reader.has_session:
                self.resume(name, FOREVER_S, 65_535)
                reader.read(100_000)
            for key, expected in reader.expected.items():
                if key[1] != SHARED:
                    assert self.is_right(expected, reader.got[key], is_all=True), key
        got = {payload for reader in self.readers.values() for payload in self.got_shared(reader)}
        assert set(self.group_due) <= got
        self.what_came_is_a_beginning_of_what_is_due()
        assert self.world.rows(persist.DELIVERY) == {}
        left = {row[1] for row in self.world.rows(persist.MESSAGE).values()}
        assert left == {payload for _, payload, _ in self.retained.values()}
        sessions = {row[0] for row in self.world.rows(persist.SESSION).values()}
        assert sessions == {name for name, reader in self.readers.items() if reader.has_session}


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(max_examples=200, stateful_step_count=60, report_multiple_bugs=False)
