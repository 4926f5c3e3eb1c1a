"""The link to the parent: dialled, dialled again when it breaks, given up only when the tree has a loop."""

import asyncio
import ssl
import sys

from broker.runtime.server import Server, Wire

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.05, 2.0
CONNECT_S_MAX = 5.0


class LoopError(Exception):
    """A broker is among its own ancestors."""


async def keep(server: Server, host: str, port: int, tls: ssl.SSLContext | None) -> None:
    """Runs until it is cancelled, or raises LoopError."""
    backoff_s = BACKOFF_S_MIN
    told: str | None = None  # the refusal that was reported last
    overlay = server.broker.overlay
    while True:
        loop = asyncio.get_running_loop()
        dialling = loop.create_connection(lambda: Wire(server, f"{host}:{port}"), host, port, ssl=tls)
        try:
            _, wire = await asyncio.wait_for(dialling, CONNECT_S_MAX)
        except (OSError, TimeoutError):
            pass
        else:
            assert wire.gone is not None
            await wire.gone.wait()
            if overlay.loop is not None:
                raise LoopError(overlay.loop)
            if overlay.refusal is not None and overlay.refusal != told:
                print(f"brokerbed broker: {overlay.refusal}; trying on", file=sys.stderr, flush=True)
            told = overlay.refusal
            if overlay.refusal is None:
                backoff_s = BACKOFF_S_MIN
        await asyncio.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
