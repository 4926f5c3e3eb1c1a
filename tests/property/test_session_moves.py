"""Clients that go from broker to broker, against the simple truth: what is published comes once, in order.

Packets on links arrive one by one, in any order that links allow, so that a publication can come between any two steps
of a move, and claims race. Nothing breaks here, and clients read their old connection until it is closed: so nothing is
lost at QoS 0 either. tests/virtual/roaming.py has schedules with faults.
"""

from collections import defaultdict
from random import Random

import mqtt5
import pytest

from brokerbed.topics import ADVERTISE, matches
from tests import routing_oracle as oracle
from tests.core_client import FOREVER_S, Client
from tests.core_network import Crashes, Network
from tests.slow_network import SlowSchedule

TOPICS = ("a/b", "a/c")
FILTERS = ("a/b", "a/c", "a/+", "#")
TREES: list[dict[str, str | None]] = [
    {"n0": None, "n1": "n0"}, {"n0": None, "n1": "n0", "n2": "n1"},
    {"n0": None, "n1": "n0", "n2": "n0", "n3": "n1"},
]  # fmt: skip
SCHEDULES, STEPS = 15, 80
EVERY_COMMIT = ("simple", "peer")  # of the others every fourth, to save time
COMMITS_MIN = 60  # that two moves over two links take


class Traveller:
    """A client with one session, which connects to one broker after the other and acknowledges what it reads."""

    def __init__(self, network: Network, node: str, name: str) -> None:
        self.network = network
        self.name = name
        self.connections: list[Client] = []
        self.got: list[tuple[int, bytes]] = []  # QoS and payload
        self.presents: list[bool] = []
        self._unreleased: set[int] = set()  # packet ids at QoS 2
        self.go(node)

    def go(self, node: str) -> None:
        client = self.network.client(node, self.name)
        client.open()
        client.send(mqtt5.ConnectPacket(self.name, clean_start=False, session_expiry_interval=FOREVER_S))
        self.connections.append(client)
        self.read()

    def read(self) -> None:
        for client in sorted(self.connections, key=lambda it: not it.is_closed):  # what ended first came first
            while (packet := client.read()) is not None:
                self._handle(client, packet)
        self.connections = [it for it in self.connections if not it.is_closed] or self.connections[-1:]

    def return_if_lost(self) -> None:
        """Connect again where it was last, if no connection is left."""
        if self.connections[-1].is_closed:
            self.go(self.connections[-1].world.name)  # type: ignore[attr-defined]

    def _handle(self, client: Client, packet: mqtt5.Packet) -> None:
        answer: mqtt5.Packet | None = None
        if isinstance(packet, mqtt5.ConnAckPacket):
            self.presents.append(packet.session_present)
        elif isinstance(packet, mqtt5.PubRelPacket):
            self._unreleased.discard(packet.packet_id)
            answer = mqtt5.PubCompPacket(packet.packet_id)
        elif isinstance(packet, mqtt5.PublishPacket):
            is_new = packet.packet_id not in self._unreleased
            if is_new:
                self.got.append((int(packet.qos), packet.payload))
            if packet.packet_id is not None and int(packet.qos) == 2:
                self._unreleased.add(packet.packet_id)
                answer = mqtt5.PubRecPacket(packet.packet_id)
            elif packet.packet_id is not None:
                answer = mqtt5.PubAckPacket(packet.packet_id)
        if answer is not None and not client.is_closed:
            client.send(answer)

    def drop(self) -> None:
        for client in self.connections:
            if not client.is_closed:
                client.drop()


def streams(got: list[tuple[int, bytes]]) -> dict[str, list[int]]:
    """The numbers that came, by publisher, topic and QoS; at QoS 1 without repetitions."""
    found: dict[str, list[int]] = defaultdict(list)
    for qos, payload in got:
        stream, _, number = payload.decode().rpartition(" ")
        if qos != 1 or int(number) not in found[stream]:
            found[stream].append(int(number))
    return dict(found)


class Journeys(SlowSchedule):
    """Two clients go from broker to broker."""

    actions = ("go", "publish", "publish", "publish", *["deliver"] * 8, "all")

    def __init__(self, random: Random, parents: dict[str, str | None], routing: str) -> None:
        super().__init__(random, parents, routing)
        for node in parents:
            if random.random() < 0.7:
                self.writers[node].send_subscribe(ADVERTISE + random.choice(FILTERS))
        self.travellers = {}
        for number in range(2):
            traveller = Traveller(self.slow.network, random.choice(self.nodes), f"s{number}")
            self.slow.deliver_all()
            traveller.read()
            topic_filter = random.choice(FILTERS)
            traveller.connections[-1].subscribe(topic_filter, qos=2)
            self.travellers[topic_filter + f" {number}"] = traveller
        self.slow.deliver_all()
        self.published: dict[str, int] = defaultdict(int)

    def act(self, action: str, node: str) -> None:
        if action == "publish":
            topic, qos = self.random.choice(TOPICS), self.random.randrange(3)
            stream = f"{node} {topic} {qos}"
            self.published[stream] += 1
            self.writers[node].publish(topic, f"{stream} {self.published[stream]}".encode(), qos=qos)
        else:
            self.random.choice(list(self.travellers.values())).go(node)

    def look(self) -> None:
        for traveller in self.travellers.values():
            traveller.read()

    def check(self) -> None:
        self.slow.deliver_all()
        for topic_filter, traveller in self.travellers.items():
            for _ in range(3):
                traveller.read()
                traveller.return_if_lost()
                self.slow.deliver_all()
            wanted = {
                stream: list(range(1, count + 1))
                for stream, count in self.published.items()
                if matches(topic_filter.split()[0], stream.split()[1])
            }
            assert streams(traveller.got) == wanted
            assert traveller.presents.count(False) == 1
        for node in self.slow.network.nodes.values():
            assert not node.broker.session_moves.is_busy
            assert all(session.move is None for session in node.broker.sessions.values())


@pytest.mark.parametrize("routing", oracle.ALL)
def test_everything_comes_once_and_in_order_at_every_qos(routing: str) -> None:
    for seed in range(SCHEDULES):
        random = Random(f"journeys/{routing}/{seed}")
        journeys = Journeys(random, random.choice(TREES), routing)
        journeys.play(STEPS)
        journeys.check()


LINE: dict[str, str | None] = {"a": None, "b": "a", "c": "b"}


class Journey:
    """A session with a queue and with messages in flight goes from one end of a line to the other and back, while
    messages come."""

    def __init__(self, routing: str, crashes: Crashes) -> None:
        self.network = Network(LINE, is_durable=True, routing=routing, inflight_max=2)
        self.traveller = Traveller(self.network, "a", "s")
        self.traveller.connections[-1].subscribe("t", qos=2)
        self.publishers = {node: self.network.client(node, f"p{node}") for node in LINE}
        self.acknowledged: dict[str, list[int]] = defaultdict(list)  # by publisher, topic and QoS
        self._last = 0
        self.commits = self.network.commits
        self.network.crashes = frozenset((self.commits + number, when) for number, when in crashes)

    def play(self) -> None:
        for goal in ("c", "a"):
            self.traveller.drop()
            self._publish()
            self.traveller.go(goal)
            self._publish()
            self._rest()
        self._rest()
        self.commits = self.network.commits - self.commits

    def _publish(self) -> None:
        """A message at each broker and QoS. It counts only if it is acknowledged."""
        for node, client in self.publishers.items():
            for qos in (1, 2):
                if client.is_closed:
                    client.connect()
                self._last += 1
                client.publish("t", f"{node} t {qos} {self._last}".encode(), qos=qos)
                if any(isinstance(it, mqtt5.PubAckPacket | mqtt5.PubRecPacket) for it in client.read_all()):
                    self.acknowledged[f"{node} t {qos}"].append(self._last)

    def _rest(self) -> None:
        for _ in range(4):
            for child, parent in LINE.items():
                if parent is not None and child not in self.network.links:
                    self.network.join(child)
            self.traveller.read()
            self.traveller.return_if_lost()
            self.network.wait(1.1)

    def check(self) -> None:
        got = streams(self.traveller.got)
        for stream, numbers in self.acknowledged.items():
            assert [number for number in got[stream] if number in numbers] == numbers, stream
        twice = [payload for qos, payload in self.traveller.got if qos == 2]
        assert len(twice) == len(set(twice))
        keys = {
            node.name: [key for key in node.broker.sessions if key[0] == "s"] for node in self.network.nodes.values()
        }
        assert keys == {"a": ["s"], "b": [], "c": []}
        assert self.traveller.presents.count(False) == 1


@pytest.mark.parametrize("routing", oracle.ALL)
def test_kill_of_any_broker_at_any_commit(routing: str) -> None:
    undisturbed = Journey(routing, frozenset())
    undisturbed.play()
    undisturbed.check()
    assert undisturbed.commits > COMMITS_MIN
    for number in range(1, undisturbed.commits + 1, 1 if routing in EVERY_COMMIT else 4):
        for when in ("before", "after"):
            journey = Journey(routing, frozenset({(number, when)}))
            journey.play()
            try:
                journey.check()
            except AssertionError as error:
                raise AssertionError(f"after a crash {when} commit {number}") from error
