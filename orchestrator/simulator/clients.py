"""Clients on the simulated network, and the connections between them and their hosts."""

from collections.abc import Callable, Mapping

from brokerbed.broker.core.run import Run
from brokerbed.clients import session
from brokerbed.clients.session import Moved, Packet
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.network import Host, Socket
from brokerbed.orchestrator.simulator.wire import NO_DELAY, Wire

BACKOFF_NS = 100_000_000


class Client(session.Client):
    """A client of the broker on one host; if it roams, of those on several `hosts` in turn."""

    def __init__(
        self, loop: Loop, host: Host, client_id: str, is_clean: bool = False,
        hosts: Mapping[str, Host] | None = None, moved: Moved | None = None,
    ) -> None:  # fmt: skip
        super().__init__(self._connect_to_host, client_id, is_clean, self._later, host.name, moved)
        self.host = host
        self._hosts = hosts
        self._loop = loop

    def move_to(self, broker: str) -> None:
        assert self._hosts is not None
        self.host = self._hosts[broker]
        super().move_to(broker)

    def _later(self, dial: Callable[[int], None], number: int) -> None:
        self._loop.at(self._loop.now_ns + BACKOFF_NS, dial, number)

    def _connect_to_host(self, _: session.Client) -> "_Connection | None":
        if not self.host.is_up or self.host.is_paused:
            return None
        return _Connection(self._loop, self, Wire if self.received is not None else _SilentWire)


class _SilentWire(Wire):
    """A wire to a client that ignores notifications, which therefore need not be delivered."""

    __slots__ = ()

    def _choose(self) -> None:
        self.send = self._without_notifications
        if self.direct is not None:
            self.direct.append = self.send  # type: ignore[method-assign]

    def _without_notifications(self, packet: Packet) -> None:
        if type(packet) is not Run:
            self._loop.soon(self._to.arrived, packet)


class _Connection:
    """A connection between a client and its host."""

    __slots__ = ("_client", "_socket", "out")
    unsent_bytes = 0  # simulated sockets take everything

    def __init__(self, loop: Loop, client: Client, wire: type[Wire]) -> None:
        self._client = client
        self._socket = Socket(client.host)
        self._socket.out = wire(loop, self, NO_DELAY)
        self.out = Wire(loop, self._socket, NO_DELAY)

    def arrived(self, packet: Packet) -> None:
        self._client.arrived(self, packet)

    def broken(self) -> None:
        self._client.lost(self)

    def close(self) -> None:
        self.out.close()
        self._socket.out.is_open = False
