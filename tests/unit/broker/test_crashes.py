"""A scripted exchange over three broker cores that have stores, with a crash at every single commit of it.

A broker dies just before it has stored what it did in a turn, or just after that and before anything of its output has
left. Whatever was acknowledged arrives, in order, at QoS 2 once; the tables are right in the end.
"""

from itertools import combinations, product

import mqtt5
import pytest

from tests.core_client import FOREVER_S, QOS, Client
from tests.core_network import Crashes, Network
from tests.routing_oracle import ALL, tables

CHAIN = {"a": None, "b": "a", "c": "b"}
ROUNDS_MAX = 60


class Robust:
    """A client that behaves as MQTT demands of one that wants nothing to be lost: it keeps its session on its side."""

    def __init__(self, network: Network, node: str, name: str, *filters: tuple[str, int]) -> None:
        self._network = network
        self._client = Client(network.nodes[node], name)  # type: ignore[arg-type]
        self._wanted = dict(filters)
        self._asked: dict[int, str] = {}
        self.subscribed: set[str] = set()
        self._open: dict[
            int, tuple[mqtt5.PublishPacket, bool]
        ] = {}  # by packet id: the message, whether it is released
        self._unreleased: set[int] = set()  # packet ids at QoS 2 that we have and the broker has not released
        self.got: list[tuple[int, bytes]] = []  # QoS, payload
        self.acknowledged: list[bytes] = []
        self.is_away = False

    @property
    def is_content(self) -> bool:
        return not self._open and self.subscribed == set(self._wanted)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        packet_id = self._client.take_id()
        packet = mqtt5.PublishPacket(topic, payload, qos=QOS[qos], packet_id=packet_id)
        self._open[packet_id] = packet, False
        if not self._client.is_closed:
            self._client.send(packet)

    def leave(self) -> None:
        self.is_away = True
        self._client.drop()

    def turn(self) -> None:
        """Connect if need be, and answer all that has come."""
        if self._client.is_closed and not self.is_away:
            self._connect()
        while not self._client.is_closed and (packet := self._client.read()) is not None:
            self._handle(packet)

    def _connect(self) -> None:
        self._client.open()
        self._client.send(
            mqtt5.ConnectPacket(self._client.client_id, clean_start=False, session_expiry_interval=FOREVER_S)
        )

    def _send(self, packet: mqtt5.Packet) -> None:
        if not self._client.is_closed:
            self._client.send(packet)

    def _greeted(self) -> None:
        for packet_id, (packet, is_released) in list(self._open.items()):
            again = mqtt5.PublishPacket(
                packet.topic, packet.payload, qos=packet.qos, packet_id=packet_id, duplicate=True
            )
            self._send(mqtt5.PubRelPacket(packet_id) if is_released else again)
        self._asked.clear()
        for topic_filter in self._wanted:
            if topic_filter not in self.subscribed:
                packet_id = self._client.take_id()
                self._asked[packet_id] = topic_filter
                wanted = mqtt5.TopicFilter(topic_filter, max_qos=QOS[self._wanted[topic_filter]])
                self._send(mqtt5.SubscribePacket(packet_id, [wanted]))

    def _handle(self, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                self._greeted()
            case mqtt5.SubAckPacket():
                self.subscribed.add(self._asked.pop(packet.packet_id))
            case mqtt5.PubAckPacket() | mqtt5.PubCompPacket():
                sent = self._open.pop(packet.packet_id, None)
                if isinstance(packet, mqtt5.PubAckPacket) and sent is not None:
                    self.acknowledged.append(sent[0].payload)
            case mqtt5.PubRecPacket():
                sent = self._open.get(packet.packet_id)
                if sent is not None:
                    if not sent[1]:
                        self.acknowledged.append(sent[0].payload)
                    self._open[packet.packet_id] = sent[0], True
                self._send(mqtt5.PubRelPacket(packet.packet_id))
            case mqtt5.PubRelPacket():
                self._unreleased.discard(packet.packet_id)
                self._send(mqtt5.PubCompPacket(packet.packet_id))
            case mqtt5.PublishPacket():
                self._take(packet)

    def _take(self, packet: mqtt5.PublishPacket) -> None:
        assert packet.packet_id is not None
        if int(packet.qos) == 1:
            self.got.append((1, packet.payload))
            self._send(mqtt5.PubAckPacket(packet.packet_id))
            return
        if packet.packet_id not in self._unreleased:
            self._unreleased.add(packet.packet_id)
            self.got.append((2, packet.payload))
        self._send(mqtt5.PubRecPacket(packet.packet_id))


class Exchange:
    """Subscribers and publishers at both ends of the chain, one of them away for a while."""

    def __init__(self, crashes: Crashes, routing: str, is_short: bool) -> None:
        self.network = Network(CHAIN, is_durable=True, crashes=crashes, routing=routing)
        self.top = Robust(self.network, "a", "top", ("t/#", 1), ("t/2", 2))
        self.bottom = Robust(self.network, "c", "bottom", ("t/#", 2), ("$advertise/t/1", 1))  # and not t/2
        self.away = Robust(self.network, "c", "away", ("t/1", 1))
        self.clients = [self.top, self.bottom, self.away]
        self.is_short = is_short
        self.published: dict[str, list[bytes]] = {}

    def quiet(self) -> None:
        """Until everybody has what he wants and nothing moves any more; links that broke are joined again."""
        for _ in range(ROUNDS_MAX):
            before = self.network.commits, [len(it.got) for it in self.clients], list(self.network.links)
            for child, parent in CHAIN.items():
                if parent is not None and child not in self.network.links:
                    self.network.join(child)
            for client in self.clients:
                client.turn()
            self.network.wait(0.1)  # claims of sessions are repeated after a second
            after = self.network.commits, [len(it.got) for it in self.clients], list(self.network.links)
            if before == after and all(it.is_content or it.is_away for it in self.clients):
                return
        pytest.fail("it does not come to rest")

    def publish(self, client: Robust, topic: str, qos: int) -> None:
        sent = self.published.setdefault(f"{id(client)} {topic} {qos}", [])
        payload = f"{self.clients.index(client)} {topic} {qos} {len(sent)}".encode()
        sent.append(payload)
        client.publish(topic, payload, qos)

    def play(self) -> None:
        self.quiet()
        self.publish(self.bottom, "t/2", 2)
        self.publish(self.top, "t/1", 1)
        self.quiet()
        if self.is_short:
            return
        self.away.leave()
        for qos, topic in product((1, 2), ("t/1", "t/2")):
            self.publish(self.bottom, topic, qos)
            self.publish(self.top, topic, qos)
        self.quiet()
        self.publish(self.top, "t/1", 2)
        self.away.is_away = False
        self.quiet()

    def check(self) -> None:
        everything = [payload for sent in self.published.values() for payload in sent]
        on_1 = [payload for payload in everything if b"t/1" in payload]
        for client, due in ((self.top, everything), (self.bottom, everything), (self.away, on_1)):
            firsts = list(dict.fromkeys(payload for _, payload in client.got))
            assert set(firsts) == set(due), f"{client} has not got all, or too much"
            at_qos2 = [payload for qos, payload in client.got if qos == 2]
            assert len(at_qos2) == len(set(at_qos2))
            for sent in self.published.values():
                assert [payload for payload in firsts if payload in sent] == [it for it in sent if it in due]
        interest = {"a": ["t/#", "t/2"], "c": ["t/#", "t/1"]}
        routing = self.network.nodes["a"].broker.config.routing
        right = tables(routing, self.network.parents, interest, {"c": ["t/1"]})
        for (holder, neighbour), entries in right.entries.items():
            assert self.network.entries(holder).get(neighbour, []) == entries
            assert self.network.advertised(holder).get(neighbour, []) == right.advertised[holder, neighbour]


def played(crashes: Crashes, routing: str = "identity", is_short: bool = False) -> Exchange:
    exchange = Exchange(crashes, routing, is_short)
    exchange.play()
    exchange.check()
    return exchange


MODES = ("before", "after")


@pytest.mark.parametrize("routing", ALL)
def test_crash_at_every_commit(routing: str) -> None:
    commits = played(frozenset(), routing).network.commits
    assert commits > 40
    for number, mode in product(range(1, commits + 1), MODES):
        exchange = played(frozenset({(number, mode)}), routing)
        assert sum(node.starts for node in exchange.network.nodes.values()) == 4


def test_crash_at_every_pair_of_commits() -> None:
    commits = played(frozenset(), is_short=True).network.commits
    for first, second in combinations(range(1, commits + 1), 2):
        for modes in product(MODES, MODES):
            played(frozenset(zip((first, second), modes, strict=True)), is_short=True)


def test_without_stores_the_same_exchange_loses_messages() -> None:
    """The test can fail."""
    exchange = Exchange(frozenset(), "identity", is_short=False)
    exchange.quiet()
    exchange.away.leave()
    exchange.publish(exchange.top, "t/1", 1)
    exchange.quiet()
    store = exchange.network.nodes["c"].store
    assert store is not None
    store.rows.clear()
    exchange.network.restart("c")
    exchange.away.is_away = False
    exchange.away.subscribed.clear()
    exchange.bottom.subscribed.clear()
    exchange.quiet()
    with pytest.raises(AssertionError, match="not got all"):
        exchange.check()
