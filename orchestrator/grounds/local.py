"""The local ground: one process per broker on the loopback interface, and a few processes with the clients."""

import asyncio
import os

from brokerbed.log.record import CLIENTS
from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.base import GroundError, Place
from brokerbed.orchestrator.grounds.clients import ClientProcess
from brokerbed.orchestrator.grounds.clocks import Reading
from brokerbed.orchestrator.grounds.link_listener import LinkListener
from brokerbed.orchestrator.grounds.local_host import LOOPBACK, LocalHost
from brokerbed.orchestrator.grounds.machine import check_machine, use_all_handles
from brokerbed.orchestrator.grounds.network import (
    all_of,
    has_quality,
    is_cut,
    is_linked,
    look_until,
    qualities,
    stderr_by_source,
)
from brokerbed.orchestrator.grounds.processes import Processes, StderrLines
from brokerbed.orchestrator.grounds.real import RealGround, parts_of
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.grounds.settings import broker_files, clients_options, new_secret, write_files
from brokerbed.scenario import Scenario


class LocalLink:
    """The link of a broker to its parent, through a relay if it may be cut, or is delayed or narrow.

    If the child moves to another parent, it has another link, and gets this one back if it returns.
    """

    def __init__(self, network: "LocalNetwork", child: LocalHost, parent: LocalHost, relay: Relay | None) -> None:
        self.child = child
        self.parent = parent
        self.relay = relay
        self._network = network
        self._changed_s = 0.0

    @property
    def is_present(self) -> bool:
        return self._network.links.get(self.child.name) is self

    def of_both(self) -> "LocalLink":
        return self

    @property
    def is_connected(self) -> bool:
        """Whether the child has reported the link as connected since the last change to either end or to the link."""
        return is_linked(self.child, self.parent, self._changed_s)

    @property
    def is_confirmed(self) -> bool:
        """Whether both ends have reported the link as connected."""
        return self.is_connected and is_linked(self.parent, self.child, self._changed_s)

    def cut(self, *ways: str) -> None:
        assert self.relay is not None
        self._changed_s = asyncio.get_running_loop().time()
        self.relay.hold(*ways)

    def repair(self, *ways: str) -> None:
        assert self.relay is not None
        self._changed_s = asyncio.get_running_loop().time()
        self.relay.release(*ways)

    async def done(self) -> None:
        """Returns at once, because changes take effect immediately."""

    @property
    def is_cut(self) -> bool:
        return self.relay is not None and self.relay.is_cut

    def is_held(self, way: str) -> bool:
        return self.relay is not None and self.relay.is_held(way)

    def crossed_bytes(self, way: str) -> int:
        return 0 if self.relay is None else self.relay.crossed_bytes(way)


class LocalNetwork:
    """The brokers of a scenario as processes."""

    def __init__(self, scenario: Scenario, place: Place, is_relayed: bool = False, may_move: bool = False) -> None:
        """`is_relayed`: every link has a relay, not only those that the scenario cuts, delays or narrows.

        `may_move`: links may move, and so any two brokers may get a link, which has a relay.
        """
        self._scenario = scenario
        self._place = place
        self._is_relayed = is_relayed
        self._listeners: dict[str, LinkListener] | None = {} if may_move else None  # by parent
        self.processes = Processes()
        self._clients: list[ClientProcess] = []
        self.relays: list[Relay] = []
        self.hosts: dict[str, LocalHost] = {}
        self.links: dict[str, LocalLink] = {}  # the present ones, by child
        self.pairs: dict[tuple[str, str], LocalLink] = {}  # all links that there were, by child and parent

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def start(self) -> None:
        """Starts all brokers, and waits until they are linked to their parents."""
        scenario, link_secret = self._scenario, new_secret()
        for name in scenario.tree.names:
            self.hosts[name] = LocalHost(self, name, self._place.raw / name, scenario.routing, scenario.durability)
            address = self._listen_for_links(name) if self._listeners is not None else None
            write_files(self._place.raw / name, broker_files(scenario, name, link_secret, address))
        for child, parent in scenario.tree.links:
            await self._link(self.hosts[child], self.hosts[parent])
        room = asyncio.Semaphore(2 * (os.cpu_count() or 1))

        async def begin(host: LocalHost) -> None:
            async with room:
                host.start()
                await host.done()

        await all_of(begin(host) for host in self.hosts.values())
        await look_until(
            self.hosts, lambda: all(link.is_connected for link in self.links.values()), "linked to their parents"
        )

    async def _link(self, child: LocalHost, parent: LocalHost) -> None:
        relay, ends = None, (child.name, parent.name)
        if self._listeners is not None:
            child.parent = self._listeners[parent.name].address
            self.links[child.name] = self._pair(*ends)
            return
        if self._is_relayed or has_quality(self._scenario, *ends) or is_cut(self._scenario, *ends):
            relay = self._relay(*ends)
            child.parent = LOOPBACK, await relay.open()
        else:
            child.parent = parent.address
        self.links[child.name] = self.pairs[ends] = LocalLink(self, child, parent, relay)

    def _relay(self, child: str, parent: str) -> Relay:
        relay = Relay(self.hosts[parent].address, *qualities(self._scenario, child, parent))
        self.relays.append(relay)
        return relay

    def _listen_for_links(self, name: str) -> tuple[str, int]:
        """Where others reach a broker, if any of them may get a link to it."""
        assert self._listeners is not None

        def relay_of(child: str) -> Relay | None:
            if child not in self.hosts or child == name:
                return None
            link = self.links[child] = self._pair(child, name)  # it dials whom it takes for its parent
            return link.relay

        listener = self._listeners[name] = LinkListener(relay_of, LOOPBACK)
        return listener.open()

    def _pair(self, child: str, parent: str) -> LocalLink:
        """The link between two brokers, whether there was one before or not."""
        if (child, parent) not in self.pairs:
            relay = self._relay(child, parent)
            relay.attach()
            self.pairs[child, parent] = LocalLink(self, self.hosts[child], self.hosts[parent], relay)
        return self.pairs[child, parent]

    async def look(self) -> None:
        await all_of(host.look() for host in self.hosts.values())

    def check(self) -> None:
        for host in self.hosts.values():
            host.check()
        for clients in self._clients:
            clients.check()

    async def clients(self, part: int, parts: int) -> ClientProcess:
        place = self._place
        options = clients_options(self._scenario, place, part, parts, str(place.raw / CLIENTS))
        name = f"clients {part + 1} of {parts}"
        stderr = StderrLines()
        process = await self.processes.spawn(
            name, stderr, "brokerbed.clients.process", str(place.scenario_file), *options
        )
        clients = ClientProcess(name, process, stderr)
        self._clients.append(clients)
        return clients

    async def listen(self) -> None:
        """Nothing to do: stderr is read continuously."""

    @property
    def stderr(self) -> dict[str, StderrLines]:
        """What brokers and clients wrote to stderr."""
        return stderr_by_source(self.hosts, self._clients)

    async def clocks(self) -> dict[str, Reading]:
        """No readings: all brokers use the clock of this machine."""
        return {}

    async def cause(self, error: GroundError) -> GroundError:
        """The error explains itself."""
        return error

    async def close(self) -> None:
        """Ends all brokers and clients."""
        for host in self.hosts.values():
            await host.end()
        for listener in (self._listeners or {}).values():
            listener.close()
        for relay in self.relays:
            relay.close()
        await self.processes.close()


class LocalGround(RealGround):
    def check(self, scenario: Scenario) -> None:
        check_machine(scenario, parts_of(scenario))

    def network(self, scenario: Scenario, place: Place) -> LocalNetwork:
        journal.clean()
        use_all_handles()
        is_relayed = self._watcher is not None  # any link may be cut
        return LocalNetwork(scenario, place, is_relayed, may_move=scenario.placement is not None)
