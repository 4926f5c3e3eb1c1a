"""The command `brokerbed broker`, which runs one broker. It imports no library that a broker process does not need."""

import asyncio
import gc
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.restore import restore
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.salvage import salvaged
from brokerbed.broker.core.store import StoreFullError
from brokerbed.broker.runtime import control, tls, uplink
from brokerbed.broker.runtime.addresses import is_any, written
from brokerbed.broker.runtime.commit_count import FILE as COUNT_FILE
from brokerbed.broker.runtime.log_file import LogFile, TurnLog, complete
from brokerbed.broker.runtime.reload import reload
from brokerbed.broker.runtime.security import MQTT, WEBSOCKET
from brokerbed.broker.runtime.server import Server
from brokerbed.broker.runtime.setting_files import SettingsError
from brokerbed.broker.runtime.settings import DISK, MEMORY, Settings, settings
from brokerbed.broker.runtime.store import SqliteStore, StoreError, is_damage
from brokerbed.log.record import Log

BAD_INPUT, MISSING = 2, 3
GC_ALLOCATIONS = 50_000  # allocations between garbage collections; a broker creates hardly any reference cycles
SHRINK_S, SHRINK_STEP_S = 2.0, 0.02  # between checks for unused space in the store, and between steps of freeing it
BACKLOG = 4096  # connections that may wait to be accepted, as when many clients reconnect after a restart
_STORE_ERRORS = (sqlite3.Error, LookupError, ValueError, TypeError, AttributeError, AssertionError, EOFError)
SIGNALS = (signal.SIGTERM, signal.SIGINT)  # the signals that end a broker


def main(arguments: list[str]) -> int:
    for number in SIGNALS:
        signal.signal(number, _interrupt)  # until the event loop handles the signals
    try:
        wanted = settings(arguments)
        if not wanted.broker.lets_clients_in:
            why = "allow_anonymous is false and there is no password_file"
            print(f"brokerbed broker: no client can connect: {why}", file=sys.stderr, flush=True)
        with ExitStack() as cleanup:
            uvloop.run(_serve(wanted, cleanup))
    except (SettingsError, StoreError, uplink.LoopError) as error:
        print(f"brokerbed broker: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error
        print(f"brokerbed broker: {problem}; choose another address, port or folder", file=sys.stderr)
        return MISSING
    except KeyboardInterrupt:
        pass
    return 0


def _interrupt(*_: object) -> None:
    """End a broker that is not listening yet. Further signals must not interrupt its clean-up."""
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _open_broker(wanted: Settings, log: Log | None) -> tuple[Broker, SqliteStore | None]:
    """The broker in the state that was last stored. Of a damaged store that is kept which can be read."""
    if wanted.durability == MEMORY or wanted.data is None:
        return Broker(wanted.broker, log), None
    gc.disable()  # nothing that is created here is garbage
    try:
        for keep in (salvaged, _nothing, _nothing):
            opened = _restore_broker(wanted, wanted.data, log, keep)
            if opened is not None:
                return opened
    finally:
        gc.freeze()  # these objects stay, so the collector need not examine them
        gc.enable()
    raise OSError(None, f"{wanted.data}: what is stored there is damaged at once")


def _nothing(_: dict[int, Row]) -> list[tuple[int, Row]]:
    return []


def _restore_broker(
    wanted: Settings, folder: Path, log: Log | None, keep: Callable[[dict[int, Row]], list[tuple[int, Row]]]
) -> tuple[Broker, SqliteStore] | None:
    """The broker restored from its store; None if the store was damaged and has been replaced.

    `keep`: which of the rows that can be read the new store gets.
    """
    store = None
    try:
        store = SqliteStore(folder, wanted.durability == DISK)
        store.open()
        broker = Broker(wanted.broker, log, is_durable=True)
        restore(broker, store.load(), time.time_ns())
        _complete_log(folder, store)
    except (OSError, *_STORE_ERRORS) as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split())  # as one line
        try:
            if store is None or not is_damage(error):
                raise OSError(None, f"{folder}: the store cannot be opened ({why})") from None
            _replace_store(store, why, keep)
        finally:
            if store is not None:
                store.close()
        return None
    if store.is_count_damaged:
        problem = f"{folder / COUNT_FILE} is damaged, so it is unknown whether anything is missing from the store"
        print(f"brokerbed broker: {problem}", file=sys.stderr, flush=True)
    return broker, store


def _replace_store(store: SqliteStore, why: str, keep: Callable[[dict[int, Row]], list[tuple[int, Row]]]) -> None:
    try:
        rows = keep(store.readable())
    except _STORE_ERRORS:  # the rows make no sense
        rows = []
    try:
        aside = store.replace(rows)
    except (sqlite3.Error, OSError) as error:
        raise OSError(
            None, f"{store.file.parent}: the store is damaged ({why}) and could not be replaced ({error})"
        ) from None
    sessions = sum(key >> persist.SHIFT << persist.SHIFT == persist.SESSION for key, _ in rows)
    kept = f"what could be read of it was kept ({sessions} sessions, {len(rows)} rows)" if rows else "nothing was kept"
    place = f"it is now {aside}" if aside is not None else "there was nothing to set aside"
    print(f"brokerbed broker: the store is damaged ({why}): {kept}; {place}", file=sys.stderr, flush=True)


def _complete_log(folder: Path, store: SqliteStore) -> None:
    row = store.row(persist.LOG)
    if row is not None:
        complete(folder, row)
        with suppress(StoreFullError):  # the next start then checks again and finds nothing missing
            store.commit([(persist.LOG, None)])


async def _shrink(store: SqliteStore) -> None:
    while True:
        has_more = store.shrink()
        await asyncio.sleep(SHRINK_STEP_S if has_more else SHRINK_S)


def _create_server(wanted: Settings, cleanup: ExitStack, log: Log | None) -> tuple[Server, SqliteStore | None]:
    """The server and its store, before it listens on any port."""
    broker, store = _open_broker(wanted, log)
    broker.started(time.time_ns())
    if store is not None:
        cleanup.callback(store.close)  # after the event loop, because the last connections to end still change state
    if wanted.parent is None:
        broker.overlay.forget_parent(time.time_ns())
    elif broker.overlay.parent is None:  # a restored parent keeps its old name until it has connected
        broker.overlay.expect_parent(wanted.parent_name or written(*wanted.parent))
    turn_log = None
    if log is not None and wanted.data is not None and wanted.broker.is_testbed:
        turn_log = TurnLog(log, wanted.data)
        cleanup.callback(turn_log.close)
    server = Server(broker, store, turn_log)
    server.flush()
    return server, store


async def _listen(wanted: Settings, server: Server) -> dict[str, asyncio.Server | tls.TlsListener]:
    """Listen on all ports. The keys of the result are the names of the listeners."""
    loop = asyncio.get_running_loop()
    listeners: dict[str, asyncio.Server | tls.TlsListener] = {}
    for name, listener in wanted.security.listeners.items():
        if listener.protocol == WEBSOCKET:
            from brokerbed.broker.runtime import websocket  # imported only if needed, as aiohttp takes much memory

            listeners[name] = await websocket.serve(server, listener, wanted.broker.packet_bytes_max, BACKLOG)
        elif listener.tls is None:
            made = partial(server.protocol, name)
            listeners[name] = await loop.create_server(made, listener.host, listener.port, backlog=BACKLOG)
        else:
            listeners[name] = await tls.serve(server, listener, tls.Protocols(partial(server.protocol, name)), BACKLOG)
    if wanted.metrics_port is not None:
        from brokerbed.broker.runtime import metrics

        host, port = wanted.metrics_host, wanted.metrics_port
        listeners["metrics"] = await metrics.serve(server.broker, host, port, server.now_ns)
    return listeners


def _place_in_tree(wanted: Settings, broker: Broker) -> str:
    """The broker's parent and routing algorithm, for the start message."""
    parent = "no parent"
    if wanted.parent is not None:
        parent = f"parent {written(*uplink.parent_address(broker.overlay, wanted.parent, wanted.parent_name))}"
    return f"{parent}, {wanted.broker.routing} routing"


def _handle_signals(wanted: Settings, server: Server, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    if wanted.has_file:
        loop.add_signal_handler(signal.SIGHUP, reload, wanted, server)


async def _serve(wanted: Settings, cleanup: ExitStack) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    log = Log() if wanted.data else None
    server, store = _create_server(wanted, cleanup, log)
    _handle_signals(wanted, server, stop)  # before any client can connect
    listeners = await _listen(wanted, server)
    has_tls = (
        wanted.security.listeners[MQTT].tls is not None
    )  # then its certificate is for a name, which we do not know
    if not wanted.broker.address and not has_tls and not is_any(wanted.host):
        port = listeners["mqtt"].sockets[0].getsockname()[1]
        server.broker.config = replace(wanted.broker, address=written(wanted.host, port))
    is_background = not wanted.broker.is_testbed  # in a testbed the server writes the log
    log_file = LogFile(log, wanted.data) if is_background and log and wanted.data else None
    shrinking = asyncio.create_task(_shrink(store)) if store is not None else None
    writing = asyncio.create_task(log_file.run()) if log_file is not None else None
    if wanted.broker.is_testbed:
        control.listen(server, stop)
    gc.freeze()  # the objects that exist now stay, so the collector need not examine them again
    gc.set_threshold(GC_ALLOCATIONS, 50, 100)
    hosts = {name: listener.host for name, listener in wanted.security.listeners.items()}
    addresses = (
        f"{name} {hosts.get(name, wanted.metrics_host)}:{listener.sockets[0].getsockname()[1]}"
        for name, listener in listeners.items()
    )
    place = _place_in_tree(wanted, server.broker)
    print(f"brokerbed broker {wanted.broker.name} ({place}): {', '.join(addresses)}", flush=True)
    linking = (
        asyncio.create_task(uplink.keep(server, wanted.parent, wanted.parent_name, wanted.security))
        if wanted.parent is not None
        else None
    )
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({stopping, linking} if linking is not None else {stopping}, return_when=asyncio.FIRST_COMPLETED)
    if linking is not None:
        linking.cancel()
    for listener in listeners.values():
        listener.close()
    server.close()
    await server.closed()
    if shrinking is not None:
        shrinking.cancel()
    if writing is not None and log_file is not None:
        writing.cancel()
        await log_file.close()
    for number in (*SIGNALS, signal.SIGHUP):
        loop.remove_signal_handler(number)
    _ignore_signals()  # further signals must not interrupt the clean-up
    if linking is not None and linking.done() and not linking.cancelled():
        linking.result()  # raises LoopError, the only reason for which the task ends by itself


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
