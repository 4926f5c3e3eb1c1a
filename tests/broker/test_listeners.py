"""Listeners with settings of their own, and TLS on all of them: for clients, WebSockets and links."""

import asyncio
import socket
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import aiomqtt
import mqtt5
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from brokerbed.broker.core.passwords import password_line
from brokerbed.broker.runtime.setting_files import SettingsError
from brokerbed.broker.runtime.settings import settings
from tests.broker.certificates import Authority
from tests.broker.running import Running, broker, connect_packet, metric, until
from tests.broker.websockets import RawWebSocket
from tests.needs import path_of

pytestmark = pytest.mark.needs("openssl")
END_S_MAX = 120.0
TLS = 'tls_cert = "server.pem"\ntls_key = "server.key"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a CA for clients and servers, and another one for brokers."""
    it = tmp_path_factory.mktemp("certificates")
    clients, brokers = Authority(it), Authority(it, "brokers")
    clients.sign("server", "localhost")
    clients.sign("alice", "alice")
    brokers.sign("leaf", "leaf")
    brokers.sign("other", "other")
    (it / "users").write_text(password_line("alice", "secret", b"0123456789abcdef") + "\n")
    return it


def listener(name: str, settings: str) -> str:
    return f'[[listener]]\nname = "{name}"\nport = 0\n{settings}'


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Running]:
    """One broker with a listener of every kind."""
    (folder / "all.toml").write_text(
        "allow_anonymous = true\n[limits]\nconnect_timeout_s = 100\n"  # for busy machines
        + listener("secure", TLS)
        + listener("users", f'{TLS}password_file = "users"\n')
        + listener("web", f'{TLS}protocol = "websocket"\npassword_file = "users"\n')
        + listener("mutual", f'{TLS}tls_client_ca = "ca.pem"\n')
        + listener("links", f'{TLS}tls_client_ca = "brokers.pem"\nlinks_only = true\n')
        + listener("pages", 'protocol = "websocket"\nallowed_origins = ["https://app.example.org"]\n')
    )
    with broker("--config", folder / "all.toml", "--ws-port", "0", "--metrics-port", "0", "--name", "root") as it:
        yield it


def context(folder: Path, certificate: str | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if certificate is not None:
        made.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    return made


def connack(port: int, tls: ssl.SSLContext | None, **options: object) -> int | None:
    """The reason code; None if the connection was closed."""
    with socket.create_connection(("localhost", port), END_S_MAX) as plain:
        try:
            with plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost") as wire:
                wire.sendall(connect_packet("", **options))
                answer = wire.recv(100)
        except (ssl.SSLError, ConnectionError):
            return None
        return answer[3] if answer[:1] == b"\x20" else None


def test_each_listener_lets_in_whom_it_may(running: Running, folder: Path) -> None:
    alice: dict[str, object] = {"username": "alice", "password": b"secret"}
    wrong: dict[str, object] = {"username": "alice", "password": b"wrong"}
    plain, own, foreign = context(folder), context(folder, "alice"), context(folder, "leaf")
    expected: list[tuple[str, ssl.SSLContext | None, dict[str, object], int | None]] = [
        ("mqtt", None, {}, 0),
        ("mqtt", plain, {}, None),
        ("secure", plain, {}, 0),
        ("secure", None, {}, None),
        ("users", plain, {}, 0x87),
        ("users", plain, alice, 0),
        ("users", plain, wrong, 0x86),
        ("mutual", plain, {}, None),
        ("mutual", own, {}, 0),
        ("mutual", foreign, {}, None),
        ("links", own, {}, None),
        ("links", foreign, {}, 0x87),
    ]
    found = [connack(running.ports[name], tls, **options) for name, tls, options, _ in expected]
    assert found == [code for *_, code in expected]


@pytest.mark.parametrize(("version", "is_accepted"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
def test_tls_is_1_2_or_newer(running: Running, folder: Path, version: str, is_accepted: bool) -> None:
    old = context(folder)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion[version]
    assert (connack(running.ports["secure"], old) == 0) is is_accepted


@pytest.mark.parametrize(("name", "transport"), [("users", "tcp"), ("web", "websockets")])
def test_paho_over_tls_and_over_secure_websockets(
    running: Running, folder: Path, name: str, transport: Literal["tcp", "websockets"]
) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, transport=transport)
    client.username_pw_set("alice", "secret")
    client.tls_set(ca_certs=str(folder / "ca.pem"))
    codes: list[int] = []
    client.on_connect = lambda _client, _data, _flags, code, _properties: codes.append(code.value)
    client.connect("localhost", running.ports[name])
    client.loop_start()
    until(lambda: bool(codes), "the CONNACK", END_S_MAX)
    client.disconnect()
    client.loop_stop()
    assert codes == [0]


def test_aiomqtt_over_tls(running: Running, folder: Path) -> None:
    async def hello() -> bytes:
        async with aiomqtt.Client(
            "localhost", running.ports["users"], username="alice", password="secret", tls_context=context(folder)
        ) as client:
            await client.subscribe("t")
            await client.publish("t", b"hello", qos=1)
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                return message.payload
        raise AssertionError

    assert asyncio.run(asyncio.wait_for(hello(), END_S_MAX)) == b"hello"


@pytest.mark.needs("mosquitto_pub")
def test_mosquitto_pub_over_tls_with_a_certificate(running: Running, folder: Path) -> None:
    command = [
        path_of("mosquitto_pub"),
        "-h",
        "localhost",
        "-p",
        str(running.ports["mutual"]),
        "-t",
        "t",
        "-m",
        "x",
        "-q",
        "1",
    ]
    certificate = ["--cert", str(folder / "alice.pem"), "--key", str(folder / "alice.key")]
    for options, is_accepted in ((certificate, True), ([], False)):
        done = subprocess.run(
            [*command, "--cafile", folder / "ca.pem", *options], capture_output=True, timeout=END_S_MAX
        )
        assert (done.returncode == 0) is is_accepted, done.stderr


def test_link_with_a_certificate_for_its_name_is_accepted_and_others_are_not(running: Running, folder: Path) -> None:
    """Mutual TLS instead of a secret. A broker of another name, or one without a certificate, is told what is wrong."""
    before = metric(running, "brokerbed_link_connected")
    assert before == 0
    for name, is_accepted in (("leaf", True), ("other", False)):
        (folder / "child.toml").write_text('[parent]\ntls_ca = "ca.pem"\ntls_cert = "leaf.pem"\ntls_key = "leaf.key"\n')
        address = f"localhost:{running.ports['links']}"
        options = ("--name", name, "--parent", address, "--config", folder / "child.toml", "--metrics-port", "0")
        with broker(*options) as child:
            if is_accepted:
                until(lambda: metric(child, "brokerbed_link_connected") == 1, "the link", END_S_MAX)
            else:
                assert child.process.stderr is not None
                assert "refuses the link" in child.process.stderr.readline()
    with broker("--name", "leaf", "--parent", f"127.0.0.1:{running.ports['mqtt']}") as child:
        assert child.process.stderr is not None
        assert "refuses the link" in child.process.stderr.readline()


def test_client_with_a_brokers_certificate_is_no_link_of_another_name(running: Running, folder: Path) -> None:
    properties = [("overlay-name", "other"), ("overlay-instance", "1")]
    tls = context(folder, "leaf")
    plain = socket.create_connection(("localhost", running.ports["links"]), END_S_MAX)
    with tls.wrap_socket(plain, server_hostname="localhost") as wire:
        wire.sendall(mqtt5.ConnectPacket("$link/other", user_properties=properties).write())
        assert wire.recv(100)[3] == 0x87


@pytest.mark.parametrize(
    ("name", "origin", "host", "status"),
    [
        ("websocket", None, "localhost", 101),
        ("websocket", "http://localhost:3000", "localhost", 101),  # a page of this machine
        ("websocket", "http://127.0.0.1", "127.0.0.1", 101),
        ("websocket", "https://evil.example", "localhost", 403),  # any page, in a browser on this machine
        ("websocket", "http://evil.example", "evil.example", 403),  # its name leads to this machine now
        ("websocket", "null", "localhost", 403),
        ("pages", "https://app.example.org", "broker.example.org", 101),
        ("pages", "https://APP.example.org", "broker.example.org", 101),
        ("pages", "http://app.example.org", "broker.example.org", 403),
        ("pages", "http://localhost", "localhost", 403),
        ("pages", None, "localhost", 101),
    ],
)
def test_pages_of_other_origins_may_not_connect(
    running: Running, name: str, origin: str | None, host: str, status: int
) -> None:
    lines = [
        "GET /mqtt HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: mqtt",
        *([f"Origin: {origin}"] if origin is not None else []), "", "",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", running.ports[name]), END_S_MAX) as wire:
        wire.sendall("\r\n".join(lines).encode())
        assert int(wire.recv(4096).split()[1]) == status


def test_websocket_without_an_origin_still_works(running: Running) -> None:
    with closing(RawWebSocket(running.ports["websocket"])) as web:
        web.connect(connect_packet())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[listener]\nname = 'a'", "each has a table of its own"),
        ("[[listener]]\nname = 'mqtt'\nport = 1", "name must be a word, and none of mqtt"),
        ("[[listener]]\nname = 'a'", "port must be a whole number"),
        ("[[listener]]\nname = 'a'\nport = true", "port must be a whole number"),
        ("[[listener]]\nname = 'a'\nport = 0\nprotocol = 'http'", "protocol must be mqtt or websocket"),
        ("[[listener]]\nname = 'a'\nport = 0\nlinks_only = true", "links_only needs tls_client_ca"),
        ("[[listener]]\nname = 'a'\nport = 0\ncolour = 1", "unknown key colour"),
        ("[[listener]]\nname = 'a'\nport = 0\nhost = '0.0.0.0'", "on a anybody could connect"),
        ("[[listener]]\nname = 'a'\nport = 0\n[[listener]]\nname = 'a'\nport = 0", "there are two called a"),
        ("allowed_origins = 'x'", "allowed_origins must be a list"),
        ("tls_client_ca = 'x'", "tls_client_ca goes with both"),
        ("[parent]\ntls_cert = 'x'", "tls_cert and tls_key go together"),
        ("[parent]\ntls_cert = 'x'\ntls_key = 'x'", "and with tls_ca"),
    ],
)
def test_mistake_in_a_listener_is_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "broker.toml").write_text(content)
    with pytest.raises(SettingsError) as told:
        settings(["--port", "0", "--config", str(tmp_path / "broker.toml")])
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_key_with_a_passphrase_is_an_error_and_nobody_is_asked(folder: Path) -> None:
    subprocess.run(
        ["openssl", "pkey", "-in", "server.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key"],
        cwd=folder, check=True, capture_output=True, timeout=END_S_MAX,
    )  # fmt: skip
    (folder / "locked.toml").write_text('tls_cert = "server.pem"\ntls_key = "locked.key"\n')
    with pytest.raises(SettingsError, match="cannot be used"):
        settings(["--port", "0", "--config", str(folder / "locked.toml")])
