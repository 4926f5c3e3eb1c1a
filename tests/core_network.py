"""A tree of broker cores joined in memory, with clients; links can be cut and brokers restarted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.restore import restore
from brokerbed.broker.core.store import MemoryStore
from brokerbed.log.record import FIELDS, RECORD, Kind, Log
from tests.core_client import NS_PER_S, Client

Crashes = frozenset[tuple[int, str]]  # number of the commit, and "before" or "after" it


@dataclass(eq=False)
class Pipe:
    """One direction of a link: what is written arrives at the other broker."""

    node: "Node"
    to: Connection
    is_held: bool = False
    is_open: bool = True  # what is written after the link has ended arrives nowhere
    waiting: bytes = b""  # under way while the link is held; lost if it is cut


class Node:
    """One broker of the network; to a Client it looks like the world."""

    def __init__(self, network: "Network", name: str, store: MemoryStore | None, **config: Any) -> None:
        self.network = network
        self.name = name
        self.store = store
        self.starts = 0
        self._config = config
        self.start()

    def start(self) -> None:
        self.starts += 1
        token = f"{self.name}/{self.starts}"
        self.log = Log()
        config = BrokerConfig(name=self.name, id_token=token, incarnation=str(self.starts), **self._config)
        self.broker = Broker(config, self.log, is_durable=self.store is not None)
        if self.store is not None:
            restore(self.broker, self.store.load(), self.now_ns)
        if (parent := self.network.parents[self.name]) is not None:
            self.broker.overlay.expect_parent(parent)

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def settle(self) -> None:
        self.network.settle()


class Network:
    def __init__(
        self,
        parents: Mapping[str, str | None],
        is_durable: bool = False,
        crashes: Crashes = frozenset(),
        configs: Mapping[str, Mapping[str, Any]] | None = None,
        **config: Any,
    ) -> None:
        """`crashes`: the broker that makes this commit dies just before it, or just after it and before its output.

        `config` is for all brokers, `configs` has more for some of them.
        """
        self.now_ns = NS_PER_S
        self.parents = dict(parents)
        self.crashes = crashes
        self.commits = 0
        stores = {name: MemoryStore() if is_durable else None for name in parents}
        more = configs or {}
        self.nodes = {name: Node(self, name, stores[name], **config, **more.get(name, {})) for name in parents}
        self.links: dict[str, tuple[Connection, Connection]] = {}  # child -> its end, the parent's end
        for name, parent in parents.items():
            if parent is not None:
                self.join(name)

    def join(self, child: str) -> None:
        parent = self.parents[child]
        assert parent is not None
        assert child not in self.links
        below, above = self.nodes[child], self.nodes[parent]
        up, down = below.broker.opened(self.now_ns, peer=parent), above.broker.opened(self.now_ns)
        up.driver, down.driver = Pipe(above, down), Pipe(below, up)
        self.links[child] = up, down
        below.broker.overlay.dialled(up)
        self.settle()

    def hold(self, child: str) -> None:
        """What is sent on the link from now on does not arrive yet."""
        for connection in self.links[child]:
            connection.driver.is_held = True

    def release(self, child: str) -> None:
        for connection in self.links[child]:
            pipe = connection.driver
            data, pipe.waiting, pipe.is_held = pipe.waiting, b"", False
            pipe.node.broker.received(pipe.to, data, self.now_ns)
        self.settle()

    def cut(self, child: str) -> None:
        up, down = self.links.pop(child)
        up.driver.is_open = down.driver.is_open = False
        parent = self.parents[child]
        assert parent is not None
        self.nodes[child].broker.lost(up, self.now_ns)
        self.nodes[parent].broker.lost(down, self.now_ns)
        self.settle()

    def restart(self, name: str) -> None:
        """The broker loses all that it has not stored; links to it break, and its clients must come again."""
        for client in self.nodes[name].broker.connections:
            if isinstance(client.driver, Client):
                client.driver.is_closed = True
        self.nodes[name].start()
        for child, parent in self.parents.items():
            if name in (child, parent) and child in self.links:
                assert parent is not None
                up, down = self.links.pop(child)
                up.driver.is_open = down.driver.is_open = False
                other, end = (parent, down) if name == child else (child, up)
                self.nodes[other].broker.lost(end, self.now_ns)

    def client(self, node: str, client_id: str) -> Client:
        return Client(self.nodes[node], client_id)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Let everything that is under way arrive."""
        busy = True
        while busy:
            busy = self._go_on()
            for node in self.nodes.values():
                broker = node.broker
                if broker.unsaved:
                    busy = True
                    if not self._commit(node):
                        continue
                dirty, broker.dirty = broker.dirty, []
                for connection in dirty:
                    busy = True
                    connection.is_dirty = False
                    data, connection.output = b"".join(connection.output), []
                    if isinstance(connection.driver, Pipe) and not connection.driver.is_open:
                        continue
                    if isinstance(connection.driver, Pipe) and connection.driver.is_held:
                        connection.driver.waiting += data
                    elif isinstance(connection.driver, Pipe):
                        connection.driver.node.broker.received(connection.driver.to, data, self.now_ns)
                    else:
                        connection.driver.inbox += data
                ending, broker.ending = broker.ending, []
                for connection in ending:
                    busy = True
                    connection.driver.is_closed = True
                    broker.lost(connection, self.now_ns)

    def _go_on(self) -> bool:
        """Have all brokers go on with what they do a little at a time; returns whether there was anything."""
        unfinished = [node.broker for node in self.nodes.values() if node.broker.deadline_ns == 0]
        for broker in unfinished:
            broker.due(self.now_ns)
        return bool(unfinished)

    def _commit(self, node: Node) -> bool:
        """Whether the broker lives on."""
        self.commits += 1
        assert node.store is not None
        if (self.commits, "before") not in self.crashes:
            node.store.commit(persist.take(node.broker))
            if (self.commits, "after") not in self.crashes:
                return True
        self.restart(node.name)
        return False

    def wait(self, seconds: float) -> None:
        """Let time pass, doing what becomes due on the way."""
        end_ns = self.now_ns + round(seconds * NS_PER_S)
        while True:
            deadlines = [it.broker.deadline_ns for it in self.nodes.values() if it.broker.deadline_ns is not None]
            if not deadlines or min(deadlines) > end_ns:
                break
            self.now_ns = max(self.now_ns, min(deadlines))
            for node in self.nodes.values():
                node.broker.due(self.now_ns)
            self.settle()
        self.now_ns = end_ns

    def sent(self, kind: str) -> dict[str, int]:
        """Messages of a kind by link (sender>receiver), where there were any."""
        out = {}
        for node in self.nodes.values():
            for session in node.broker.overlay.links():
                if session.link is not None and session.link.sent[kind]:
                    out[f"{node.name}>{session.link.peer}"] = session.link.sent[kind]
        return out

    def events(self, node: str, *kinds: Kind) -> list[dict[str, Any]]:
        """What a broker logged, with names put back; notifications at QoS 0 that were passed on are of kind ROUTED."""
        log = self.nodes[node].log
        names: dict[int, str | None] = {-1: None, **dict(log.names)}
        out = []
        for values in RECORD.iter_unpack(log.records):
            event = dict(zip((name for name, _ in FIELDS), values, strict=True))
            for key in ("origin", "subject", "topic"):
                event[key] = names[event[key]]
            if event["kind"] in kinds:
                out.append(event)
        return out

    def advertised(self, node: str) -> dict[str, list[str]]:
        """What a broker knows that its neighbours advertise: neighbour -> filters."""
        links = [session.link for session in self.nodes[node].broker.overlay.links() if session.link is not None]
        known = {link.peer: sorted(it.topics for it in link.advertised if it.is_advertisement) for link in links}
        return {peer: filters for peer, filters in known.items() if filters}

    def entries(self, node: str) -> dict[str, list[str]]:
        """The routing entries of a broker: neighbour -> filters."""
        links = [session.link for session in self.nodes[node].broker.overlay.links() if session.link is not None]
        return {link.peer: sorted(entry.filter for entry in link.entries) for link in links if link.entries}
