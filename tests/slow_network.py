"""Brokers joined by links on which packets arrive one by one, in any order that links allow."""

from random import Random

from brokerbed.broker.core.connection import Connection
from brokerbed.broker.mqtt import frames
from tests.core_client import FOREVER_S, Client
from tests.core_network import Network, Pipe

PACKET_BYTES_MAX = 2**20


class SlowNetwork:
    """A network whose links deliver only when they are told to, one packet at a time."""

    def __init__(self, parents: dict[str, str | None], routing: str) -> None:
        self.network = Network(parents, routing=routing, keep_alive_max_s=0)
        for child in self.network.links:
            self.network.hold(child)
        self.ends = [end for ends in self.network.links.values() for end in ends]

    def deliver(self, end: Connection) -> bool:
        """Let one packet arrive that was sent at this end of a link; False if there is none."""
        pipe = end.driver
        assert isinstance(pipe, Pipe)
        bounds = frames.bounds(pipe.waiting, 0, PACKET_BYTES_MAX) if pipe.waiting else None
        if bounds is None:
            return False
        packet, pipe.waiting = pipe.waiting[: bounds[1]], pipe.waiting[bounds[1] :]
        pipe.node.broker.received(pipe.to, packet, self.network.now_ns)
        self.network.settle()
        return True

    def deliver_one_each(self) -> None:
        for end in self.ends:
            self.deliver(end)

    def deliver_all(self) -> None:
        while any(self.deliver(end) for end in self.ends):
            pass

    def client(self, node: str, name: str) -> Client:
        made = self.network.client(node, name)
        made.connect(expiry_s=FOREVER_S)
        return made


class SlowSchedule:
    """Random actions at random brokers, among them that a packet arrives. At every broker there is a publisher."""

    actions: tuple[str, ...]  # those drawn: "deliver" a packet, "all" packets, and those that `act` knows

    def __init__(self, random: Random, parents: dict[str, str | None], routing: str) -> None:
        self.random = random
        self.slow = SlowNetwork(parents, routing)
        self.nodes = list(parents)
        self.writers = {node: self.slow.client(node, f"writer {node}") for node in parents}

    def play(self, steps: int) -> None:
        for _ in range(steps):
            action, node = self.random.choice(self.actions), self.random.choice(self.nodes)
            if action == "deliver":
                self.slow.deliver(self.random.choice(self.slow.ends))
            elif action == "all":
                self.slow.deliver_all()
            else:
                self.act(action, node)
            self.look()

    def act(self, action: str, node: str) -> None:
        raise NotImplementedError

    def look(self) -> None:
        """What happens after every step."""
