"""A TCP proxy in front of a broker, so that tests can break the connections of clients that they did not start.

Its port stays the same when the broker is restarted. While the broker is dead, the proxy refuses connections, as the
operating system would.
"""

import asyncio
import os
import socket
from contextlib import suppress

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.connect_start import client_id_of
from brokerbed.orchestrator.grounds.local_host import LOOPBACK, reserve_port
from brokerbed.orchestrator.grounds.network import all_of
from brokerbed.orchestrator.grounds.relay import CHUNK_BYTES, Relay

CLIENTS_MAX = 10_000  # of one broker; each takes two descriptors


class ClientProxy:
    """The proxy of one broker. All its methods must be called in the same event loop."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._port = reserve_port()
        self._relay = Relay(target, connections_max=CLIENTS_MAX, keeps_start=True)

    @property
    def address(self) -> tuple[str, int]:
        return LOOPBACK, int(self._port.getsockname()[1])

    async def open(self) -> None:
        try:
            await self._relay.open(self.address[1])
        except OSError as error:
            host, port = self.address
            reason = os.strerror(error.errno) if error.errno else error
            raise GroundError(f"no client can connect to {host}:{port} any more ({reason})") from None

    def shut(self) -> None:
        """Refuses new connections; those that exist stay."""
        self._relay.refuse()

    async def disconnect(self, client_id: str | None, wait_s_max: float) -> int:
        """Resets the connections of this client, or of all clients, and returns how many there were.

        Waits until the broker has closed each of them, unless `wait_s_max` is 0. Raises TimeoutError if it does not.
        """
        ends = self._relay.reset(lambda start: client_id is None or client_id_of(start) == client_id)
        try:
            if wait_s_max:
                await asyncio.wait_for(all_of(_until_ended(end) for end in ends), wait_s_max)
        finally:
            for end in ends:
                end.close()
        return len(ends)

    def close(self) -> None:
        self._relay.close()
        self._port.close()


async def _until_ended(end: socket.socket) -> None:
    """Reads until the broker has closed the connection; the data is for a client that is gone, so it is discarded."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while await loop.sock_recv(end, CHUNK_BYTES):
            pass
