"""`brokerbed broker` as a program: safe by default, its files, TLS, WebSockets, metrics, its end."""

import asyncio
import json
import select
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import aiohttp
import mqtt5
import pytest

from brokerbed.broker.core.passwords import password_line
from brokerbed.log.reader import LogError, read
from brokerbed.log.record import MAGIC
from tests.broker.running import COMMAND, WAIT_S, broker, connect_packet, until


def talk(port: int, *packets: bytes, context: ssl.SSLContext | None = None) -> list[mqtt5.Packet]:
    """Send packets, then read until as many answers came or the broker closes."""
    plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
    with context.wrap_socket(plain, server_hostname="localhost") if context else plain as wire:
        wire.sendall(b"".join(packets))
        data = b""
        answers: list[mqtt5.Packet] = []
        while len(answers) < len(packets):
            received = wire.recv(65536)
            if not received:
                break
            data += received
            while data:
                try:
                    packet, size = mqtt5.read(memoryview(data))
                except IndexError:
                    break
                answers.append(packet)
                data = data[size:]
        return answers


def code(packets: list[mqtt5.Packet]) -> int:
    (acknowledgement,) = packets
    assert isinstance(acknowledgement, mqtt5.ConnAckPacket)
    return int(acknowledgement.reason_code)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "broker", *arguments], capture_output=True, text=True, timeout=WAIT_S)


NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs the /proc of Linux")


@NEEDS_PROC
def test_listens_on_loopback_only_by_default() -> None:
    with broker() as running:
        assert code(talk(running.ports["mqtt"], connect_packet())) == 0
        listening = Path(f"/proc/{running.process.pid}/net/tcp").read_text()
        port = f"{running.ports['mqtt']:04X}"
        assert f" 0100007F:{port} " in listening
        assert f" 00000000:{port} " not in listening


def test_other_addresses_need_a_word_about_anonymous_clients(tmp_path: Path) -> None:
    done = run("--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "allow_anonymous" in done.stderr
    config = tmp_path / "broker.toml"
    config.write_text("allow_anonymous = true\n")
    with broker("--host", "127.0.0.2", "--config", config):
        pass


def test_password_file_and_access_file(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(password_line("alice", "secret", b"0123456789ab") + "\n")
    (tmp_path / "access").write_text("user alice\ntopic readwrite mine/#\n")
    config = tmp_path / "broker.toml"
    config.write_text('password_file = "users"\naccess_file = "access"\n')
    with broker("--config", config) as running:
        port = running.ports["mqtt"]
        assert code(talk(port, connect_packet())) == 0x87
        assert code(talk(port, connect_packet(username="alice", password=b"wrong"))) == 0x86
        login = connect_packet(username="alice", password=b"secret")
        wanted = [mqtt5.TopicFilter("mine/x"), mqtt5.TopicFilter("#")]
        publish = [mqtt5.PublishPacket(t, b"", qos=mqtt5.QoS(1), packet_id=i) for i, t in ((2, "mine/y"), (3, "other"))]
        _, granted, first, second = talk(
            port, login, mqtt5.SubscribePacket(1, wanted).write(), *(packet.write() for packet in publish)
        )
        assert isinstance(granted, mqtt5.SubAckPacket)
        assert [int(it) for it in granted.reason_codes] == [2, 0x87]
        assert isinstance(first, mqtt5.PubAckPacket)
        assert isinstance(second, mqtt5.PubAckPacket)
        assert (int(first.reason_code), int(second.reason_code)) == (0x10, 0x87)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("colour = 1", "unknown key colour"),
        ("[limits]\nqueue = 1", "unknown key queue"),
        ("[limits]\nqueue_messages_max = -1", "must be a number that is not negative"),
        ('[limits]\nqueue_policy = "newest"', "drop-oldest or reject"),
        ('password_file = "none"', "cannot be read"),
        ('tls_cert = "none.pem"', "go together"),
        ('tls_cert = "a"\ntls_key = "b"', "cannot be used"),
        ("[service]\nbroker_in = 3", "a demand is like"),
        ('[service]\nbroker_in = {mean_s = 1, law = "pareto"}', "law must be one of"),
        ("[service]\nseed = 1.5", "seed must be a whole number or text"),
        ('address = "nowhere"', 'address must be "HOST:PORT", like "10.0.0.7:1883", not nowhere'),
        ("address = 1883", "address must be"),
        ("testbed = 1", "testbed must be true or false"),
        ("roaming = 1", "roaming must be true or false"),
        ("move_timeout_s = -1", "move_timeout_s must be a number that is not negative"),
        ('[parent]\nname = "a/b"', "a broker's name"),
        ("[placement]\nperiod_s = 60", "placement: links move under peer and peer-advertisement routing, not under identity"),
        ("= 3", "not valid TOML"),
    ],
)  # fmt: skip
def test_bad_configuration_is_exit_code_2_and_one_line(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(content)
    done = run("--port", "0", "--config", config)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("placement = 60", "placement: like {period_s = 60.0}, not 60"),
        ("[placement]\ngain = 0.1", "like {period_s = 60.0}"),
        ("[placement]\nperiod_s = 0", "period_s must be a number above 0, not 0"),
        ("[placement]\nperiod_s = inf", "period_s must be a number above 0, not inf"),
        ("[placement]\nperiod_s = 1\ngain = 1", "gain must be a number of at least 0 and below 1"),
        ("[placement]\nperiod_s = 1\nmoves = 0", "moves must be a whole number of at least 1"),
        ("[placement]\nperiod_s = 1\nalpha = -1", "alpha must be a number that is not negative"),
        ("[placement]\nperiod_s = 1\ncolour = 1", "placement: unknown key colour; known are period_s,"),
        ("[placement]\nperiod_s = 1\nseed = 0.5", "seed must be a whole number or text"),
        ('[placement]\nperiod_s = 1\nlinks = [{between = ["a"], cost = 1}]', "links: a list like"),
        ('[placement]\nperiod_s = 1\nlinks = [{between = ["a", "b"], cost = "x"}]', "the cost between a and b must be"),
        ("[placement]\nperiod_s = 1\nbrokers = {a = -1}", "the cost of a must be a number that is not negative"),
    ],
)  # fmt: skip
def test_bad_placement_is_exit_code_2_and_one_line(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(content)
    done = run("--port", "0", "--routing", "peer", "--config", config)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_port_that_is_taken_is_exit_code_3_and_one_line() -> None:
    with broker() as running:
        done = run("--port", str(running.ports["mqtt"]))
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("testbed", ["true", "false"])
def test_data_that_cannot_be_a_folder_is_exit_code_3_and_one_line(tmp_path: Path, testbed: str) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f"testbed = {testbed}\n")
    for data in (config, config / "below", Path("/proc/brokerbed")):
        done = run("--port", "0", "--config", config, "--data", data)
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr


def certificate(folder: Path) -> None:
    """For localhost, signed by itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True, timeout=WAIT_S,
    )  # fmt: skip


NEEDS_OPENSSL = pytest.mark.needs("openssl")


@NEEDS_OPENSSL
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_link_to_a_parent_with_passwords_and_tls(tmp_path: Path, password: str) -> None:
    certificate(tmp_path)
    (tmp_path / "users").write_text(password_line("leaf", "secret", b"0123456789ab") + "\n")
    (tmp_path / "leaf.password").write_text(password + "\n")
    above, below = tmp_path / "above.toml", tmp_path / "below.toml"
    above.write_text('password_file = "users"\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n')
    below.write_text('[parent]\nuser = "leaf"\npassword_file = "leaf.password"\ntls_ca = "cert.pem"\n')
    with broker("--config", above, "--name", "root", "--data", tmp_path / "root") as root:
        parent = f"localhost:{root.ports['mqtt']}"
        with broker("--config", below, "--name", "leaf", "--parent", parent) as leaf:
            subscribe = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")]).write()
            talk(leaf.ports["mqtt"], connect_packet("me"), subscribe)
            if password == "wrong":
                assert leaf.process.stderr is not None
                assert select.select([leaf.process.stderr], [], [], WAIT_S)[0], "it is not reported"
                assert "refuses the link: check user and password_file" in leaf.process.stderr.readline()
                return
            until(lambda: b"root>leaf" in (tmp_path / "root" / "log.1.names").read_bytes(), "the link")


@NEEDS_OPENSSL
def test_tls(tmp_path: Path) -> None:
    certificate(tmp_path)
    config = tmp_path / "broker.toml"
    config.write_text('tls_cert = "cert.pem"\ntls_key = "key.pem"\n')
    with broker("--config", config) as running:
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        assert code(talk(running.ports["mqtt"], connect_packet(), context=context)) == 0


def test_metrics_of_real_traffic() -> None:
    with broker("--metrics-port", "0", "--name", "b7") as running:
        publish = mqtt5.PublishPacket("t", b"x", qos=mqtt5.QoS(1), packet_id=1).write()
        subscribe = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=mqtt5.QoS(0))]).write()
        talk(running.ports["mqtt"], connect_packet(), subscribe, publish)
        with urllib.request.urlopen(f"http://127.0.0.1:{running.ports['metrics']}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
    assert 'brokerbed_messages_received_total{broker="b7"} 1.0' in lines
    assert 'brokerbed_messages_delivered_total{broker="b7"} 1.0' in lines
    assert any(line.startswith('brokerbed_connections{broker="b7"}') for line in lines)
    assert any(line.startswith('brokerbed_routing_entries{broker="b7",scope="local"}') for line in lines)


async def exchange(port: int) -> list[bytes]:
    """Over one WebSocket: connect, subscribe, publish in pieces that cut packets anywhere; what comes back."""
    stream = connect_packet() + mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")]).write()
    stream += mqtt5.PublishPacket("t", b"hello " * 5000).write()
    data = b""
    payloads: list[bytes] = []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/mqtt", protocols=("mqtt",)) as web,
    ):
        assert web.protocol == "mqtt"
        for start in range(0, len(stream), 777):
            await web.send_bytes(stream[start : start + 777])
        while not payloads:
            data += await web.receive_bytes(timeout=WAIT_S)
            while True:
                try:
                    packet, size = mqtt5.read(memoryview(data))
                except IndexError:
                    break
                data = data[size:]
                if isinstance(packet, mqtt5.PublishPacket):
                    payloads.append(packet.payload)
        await web.send_str("text is not allowed")
        assert (await web.receive(timeout=WAIT_S)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    return payloads


def test_websocket_carries_the_same_protocol() -> None:
    with broker("--ws-port", "0") as running:
        assert asyncio.run(exchange(running.ports["websocket"])) == [b"hello " * 5000]
        assert code(talk(running.ports["mqtt"], connect_packet())) == 0


def test_log_tells_what_happened_and_survives_half_a_record(tmp_path: Path) -> None:
    with broker("--data", tmp_path) as running:
        subscribe = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t/#", max_qos=mqtt5.QoS(1))]).write()
        run_of_three = b"".join(mqtt5.PublishPacket("t/1", payload).write() for payload in (b"aa", b"bb", b"cc"))
        one = mqtt5.PublishPacket("t/2", b"d", qos=mqtt5.QoS(1), packet_id=2).write()
        talk(running.ports["mqtt"], connect_packet("me"), subscribe, run_of_three, one, b"\xc0\x00", b"\xc0\x00")
    with (tmp_path / "log.1.records").open("ab") as records:
        records.write(b"half")
    table = read(tmp_path, "b0").to_pylist()
    story = [(row["event"], row["sequence"], row["topic"], row["size"]) for row in table]
    assert story.pop(0) == ("started", None, None, 0)
    assert story[:2] == [("connected", None, None, 0), ("subscribed", None, "t/#", 0)]
    for sequence in (1, 2, 3):
        assert ("received", sequence, "t/1", 2) in story
        assert ("sent", sequence, "t/1", 2) in story
    assert ("received", 4, "t/2", 1) in story
    assert ("sent", 4, "t/2", 1) in story
    assert sorted(event for event, *_ in story[10:]) == [
        "disconnected",
        "dropped",
        "unsubscribed",
    ]  # never acknowledged
    assert {row["client"] for row in table[1:]} == {"me"}
    assert {row["broker"] for row in table} == {"b0"}
    assert [row["time_ns"] for row in table] == sorted(row["time_ns"] for row in table)


def test_name_is_random_and_kept_with_the_data(tmp_path: Path) -> None:
    names = []
    for _ in (1, 2):
        with broker("--data", tmp_path / "one") as running:
            talk(running.ports["mqtt"], connect_packet("me"), mqtt5.PublishPacket("t", b"").write() + b"\xc0\x00")
        names.append(json.loads((tmp_path / "one" / "broker.json").read_text())["name"])
    with broker("--data", tmp_path / "two"):
        other = json.loads((tmp_path / "two" / "broker.json").read_text())["name"]
    assert names[0] == names[1] != other
    messages = [(row["origin"], row["sequence"]) for row in read(tmp_path / "one", "b").to_pylist() if row["origin"]]
    assert messages == [(f"{names[0]}.1", 1), (f"{names[0]}.2", 1)]  # the log has both lives, and tells them apart


@pytest.mark.parametrize("content", ["[]", "{", '{"starts": "x"}'])
def test_damaged_name_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "broker.json").write_text(content)
    done = subprocess.run([COMMAND, "broker", "--data", tmp_path], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "broker.json" in done.stderr


def test_log_reader_refuses_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "log.1.records").write_bytes(b"something else")
    (tmp_path / "log.1.names").write_text("")
    with pytest.raises(LogError, match="not a message log"):
        read(tmp_path, "b0")
    (tmp_path / "log.1.records").write_bytes(MAGIC)
    (tmp_path / "log.1.names").write_text("nonsense\n" + json.dumps({"name": 0, "is": "x"}))
    with pytest.raises(LogError, match="line 1 is not an entry"):
        read(tmp_path, "b0")
    with pytest.raises(LogError, match="No such file"):
        read(tmp_path / "none", "b0")


@NEEDS_PROC
def test_process_needs_none_of_the_other_libraries() -> None:
    """A broker keeps its memory for messages: the command line's and the scenarios' libraries are not loaded."""
    with broker("--metrics-port", "0") as running:
        mapped = Path(f"/proc/{running.process.pid}/maps").read_text()
    for library in ("pydantic", "numpy", "pyarrow", "yaml", "aiohttp"):
        assert f"/{library}" not in mapped, library


def test_end_says_goodbye_to_clients_of_version_5() -> None:
    with broker() as running:
        wire = socket.create_connection(("127.0.0.1", running.ports["mqtt"]), WAIT_S)
        with wire:
            wire.sendall(connect_packet())
            assert wire.recv(100)[0] == 0x20
            running.process.terminate()
            assert wire.recv(100) == b"\xe0\x01\x8b"
            assert wire.recv(100) == b""
        assert running.process.wait(WAIT_S) == 0
