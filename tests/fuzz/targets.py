"""What is fuzzed. A target takes any bytes; an exception means that a bug was found.

Each target has seeds, which are valid inputs, so that a fuzzer need not invent a CONNECT or a scenario.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiohttp import web

from brokerbed.broker.errors import MqttError
from brokerbed.broker.mqtt import frames, v5, v311
from brokerbed.log import reader
from brokerbed.log.record import MAGIC, NAMES_FILE, RECORD, RECORDS_FILE
from brokerbed.orchestrator.live.server import Live
from brokerbed.scenario import ScenarioError, load
from tests.core_client import FOREVER_S, Client
from tests.durable_world import DurableWorld
from tests.mqtt.fuzz import connects, packets5, packets311

FRAMES_MAX = 100
OPERATIONS_MAX = 60
PACKET_BYTES_MAX = 2**20
SEND, VALID, DROP, CONNECT, WAIT, DIE = range(6)  # operations of the target `core`
SCENARIO = b"""scenario: 1
name: fuzzed
seed: 7
clock: {warmup: 1s, measure: 60s}
topology: {tree: levels, brokers: 3, width: 2}
routing: identity
classes: 10
subscriptions: {mean_active: 100, lifetime: {mean: 60s, law: exponential}}
publications: {rate: 10/s, at: [{broker: b1, class: 7, rate: 3/s}], qos: 1}
publishers: [{id: p4, broker: b1, topic: metro/4, rate: 1/s, on: {mean: 109s}, off: {mean: 121.5s}}]
subscribers: [{id: s1, broker: b2, topic: metro/4, on: {mean: 146.3s}, off: {mean: 96s}}]
faults: [{at: 20s, crash: b1, for: 2s}, {every: {mean: 60s}, cut: any, for: {mean: 5s}}]
sweep: {subscriptions.mean_active: [10, 100]}
limits: {messages: 1000, bytes: 64MB, policy: drop-oldest}
tolerance: 2%
"""


@dataclass(frozen=True)
class FuzzTarget:
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


# -- the decoders -----------------------------------------------------------------------------------------------------


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    for _ in range(FRAMES_MAX):
        bounds = frames.bounds(data, at, PACKET_BYTES_MAX) if at < len(data) else None
        if bounds is None:
            return
        yield data[at : bounds[1]]
        at = bounds[1]


def decode_311(data: bytes) -> None:
    """A packet of a client, or an error that has a name; MQTT 3.1 as well."""
    with suppress(MqttError):
        for frame in _frames(data):
            for decode in (v311.decode, v311.decode_31):
                with suppress(MqttError):
                    decode(frame)


def decode_5(data: bytes) -> None:
    """A packet or an error that has a name. What was decoded is encoded so that it is decoded to the same."""
    with suppress(MqttError):
        for frame in _frames(data):
            try:
                packet = v5.decode(frame)
            except MqttError:
                continue
            assert repr(v5.decode(v5.encode(packet))) == repr(packet)


# -- the core ---------------------------------------------------------------------------------------------------------


def core(data: bytes) -> None:
    """Two clients send whatever they like to a durable broker, which may die; a third is served as ever."""
    world = DurableWorld(id_token="fuzz", incarnation="1")
    clients = [Client(world, name) for name in ("one", "two")]
    at = 0
    for _ in range(OPERATIONS_MAX):
        head, at = data[at : at + 2], at + 2
        if len(head) < 2:
            break
        client, operation = clients[head[0] & 1], (head[0] >> 1) % 6
        argument, at = data[at : at + head[1]], at + head[1]
        _operate(world, client, operation, argument, head[0] >> 4)
    world.restart()  # from what is stored
    bystander = Client(world, "bystander")
    bystander.connect(expiry_s=FOREVER_S)
    assert bystander.subscribe("bystander/+") == [2]
    bystander.publish("bystander/x", b"served", qos=1)
    assert b"served" in bystander.payloads()
    world.check_rows()


def _operate(world: DurableWorld, client: Client, operation: int, argument: bytes, number: int) -> None:
    if operation == CONNECT:
        if not client.is_closed:
            client.drop()
        client.open()
        client.send_bytes(connects(client.client_id)[number % 4])
    elif operation == DIE:
        world.die_at_commit("before" if number & 1 else "after")
    elif operation == WAIT:
        world.wait(float(2**number))
    elif not client.is_closed and client.connection in world.broker.connections:
        if operation == DROP:
            client.drop()
        elif operation == SEND:
            client.send_bytes(argument)
        else:
            valid = (packets5 if number & 8 else packets311)("two" if number & 1 else "one")
            client.send_bytes(valid[argument[0] % len(valid)] if argument else b"".join(valid))


def _core_seeds() -> list[bytes]:
    def operation(client: int, kind: int, number: int = 0, argument: bytes = b"") -> bytes:
        return bytes([client | kind << 1 | number << 4, len(argument)]) + argument

    def all_valid(version: int) -> bytes:
        return b"".join(operation(0, VALID, version, bytes([which])) for which in range(14))

    sent = b"".join(operation(0, SEND, 0, packet) for packet in packets5("two") if len(packet) < 256)
    begin = operation(0, CONNECT, 3) + operation(1, CONNECT, 1)
    return [
        begin + all_valid(8) + operation(0, DROP) + operation(0, CONNECT, 3),
        operation(0, CONNECT, 1) + all_valid(0) + operation(0, DROP) + operation(0, WAIT, 3),
        begin + sent + operation(0, DIE, 1) + operation(1, VALID, 0, b"\x02") + operation(1, CONNECT, 1),
        begin + operation(1, VALID, 1, b"\x04") + operation(0, VALID, 9, b"\x03") + operation(1, VALID, 0, b"\x07"),
    ]


# -- the scenario loader and the log reader ---------------------------------------------------------------------------


@lru_cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory()


def scenario_loader(data: bytes) -> None:
    """A scenario, or the loader's one error with its file and line."""
    file = Path(_folder().name) / "fuzzed.yaml"
    file.write_bytes(data)
    try:
        load(file)
    except ScenarioError as error:
        if not str(error).startswith(str(file)):
            raise


def log_reader(data: bytes) -> None:
    """A log whose names and records are damaged is read as far as it goes, or refused with the file's name."""
    names, _, records = data.partition(b"\0\0\n")
    folder = Path(_folder().name)
    (folder / NAMES_FILE.format(1)).write_bytes(names)
    (folder / RECORDS_FILE.format(1)).write_bytes(records)
    try:
        for _ in reader.tables(folder, "b"):
            pass
    except reader.LogError as error:
        if not str(error).startswith(str(folder)):
            raise


def _log_seeds() -> list[bytes]:
    names = b'{"name": 0, "is": "p"}\n{"name": 1, "is": "t/x"}\n{"route": 0, "to": [0, 1]}\n\0\0\n'
    return [names + MAGIC + bytes(RECORD.size * 2) + bytes(range(RECORD.size)), names + MAGIC, b"\0\0\n"]


# -- the HTTP API -----------------------------------------------------------------------------------------------------


class _Faults:
    """The faults of a run that accepts every request that the API lets through."""

    def strike(self, verb: str, target: object) -> int | None:
        return hash((verb, repr(target))) % 1000 or None

    def heal_one(self, number: int) -> bool:
        return number % 2 == 0


class _Api:
    """The live page of a run, served on loopback by an event loop that runs only while it is asked."""

    def __init__(self) -> None:
        file = Path(_folder().name) / "served.yaml"
        file.write_bytes(SCENARIO)
        self.loop = asyncio.new_event_loop()
        run: Any = SimpleNamespace(scenario=load(file).points[0], faults=_Faults())
        predicted: Any = []
        live = Live(run, predicted, "127.0.0.1")
        self.token = live.token
        runner = web.AppRunner(live.app, access_log=None)
        self.loop.run_until_complete(runner.setup())
        self.loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.port = runner.addresses[0][1]

    def answer(self, request: bytes) -> bytes:
        return self.loop.run_until_complete(self._answer(request))

    async def _answer(self, request: bytes) -> bytes:
        stream, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            writer.write_eof()
            return await asyncio.wait_for(stream.read(), 5)
        except (ConnectionError, TimeoutError):  # an event stream has no end
            return b""
        finally:
            writer.close()


@lru_cache
def _api() -> _Api:
    return _Api()


def http_api(data: bytes) -> None:
    """No request whatever makes the server fail, which would be a status of 500."""
    kind, rest = data[:1], data[1:]
    token = _api().token.encode()
    if kind in (b"s", b"h"):
        path = b"/strike" if kind == b"s" else b"/heal"
        head = (
            b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n"
        )
        request = head % (path, _api().port, token, len(rest)) + rest
    else:
        request = rest.replace(b"TOKEN", token).replace(b"/events", b"/tree")
    answer = _api().answer(request)
    assert b" 500 " not in answer.partition(b"\r\n")[0], answer[:2000]


def _http_seeds() -> list[bytes]:
    bodies: list[dict[str, Any]] = [
        {"verb": "crash", "target": "b1"}, {"verb": "cut", "target": ["b0", "b1"]},
        {"verb": "disconnect", "target": "s1"}, {"verb": "nothing", "target": 1},
    ]  # fmt: skip
    return [
        *(b"s" + json.dumps(body).encode() for body in bodies),
        b'h{"number": 4}',
        b"rGET /tree?token=TOKEN HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"rPOST /heal HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Token: TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ]


def _packet_seeds(version: int) -> list[bytes]:
    valid = packets5("t") if version == 5 else packets311("t")
    return [*connects("c")[2 if version == 5 else 0 :][:2], *valid, b"".join(valid)]


TARGETS = {
    "decoder of MQTT 3.1.1": FuzzTarget(decode_311, lambda: _packet_seeds(4)),
    "decoder of MQTT 5": FuzzTarget(decode_5, lambda: _packet_seeds(5)),
    "core": FuzzTarget(core, _core_seeds),
    "scenario loader": FuzzTarget(scenario_loader, lambda: [SCENARIO]),
    "log reader": FuzzTarget(log_reader, _log_seeds),
    "HTTP API": FuzzTarget(http_api, _http_seeds),
}
