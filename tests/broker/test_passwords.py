"""Passwords against a running broker: checks do not hold up other clients, take turns, and are not repeated."""

import base64
import hashlib
import io
import socket
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path

import mqtt5
import pytest

from brokerbed.broker.core.passwords import parse_users
from brokerbed.cli import dispatch
from tests.broker.running import WAIT_S, Running, broker, connect_packet
from tests.mqtt.dial import Dial
from tests.needs import path_of

CONNACK_BYTES = 3  # its fixed header and the two bytes before the reason code
MANY = 20  # checks
ITERATIONS = 50_000  # of PBKDF2: some 25 ms on an idle machine
ANSWER_S_MAX = 60.0


def configured(folder: Path) -> Path:
    hashed = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", ITERATIONS, 64)
    line = f"alice:$7${ITERATIONS}${base64.b64encode(b'salt').decode()}${base64.b64encode(hashed).decode()}\n"
    (folder / "users").write_text(line, encoding="utf-8")
    file = folder / "broker.toml"
    file.write_text(
        'password_file = "users"\nallow_anonymous = true\n[limits]\nconnect_timeout_s = 60\n', encoding="utf-8"
    )
    return file


def login(running: Running, user: str, password: bytes, source: str = "127.0.0.1") -> socket.socket:
    """A connection that has sent its CONNECT."""
    wire = socket.create_connection(("127.0.0.1", running.ports["mqtt"]), ANSWER_S_MAX, (source, 0))
    wire.sendall(connect_packet("", username=user, password=password))
    return wire


def answer(wire: socket.socket) -> int:
    data = wire.recv(4096)
    assert data[0] == 0x20, data
    return data[CONNACK_BYTES]


def test_others_are_served_while_passwords_are_checked(tmp_path: Path) -> None:
    """If checks held up the broker, a client would be served about once between two of them."""
    with broker("--config", configured(tmp_path)) as running, closing(Dial(running.ports["mqtt"])) as dial:
        client = dial.v5()
        wires = [login(running, f"nobody{at}", b"wrong") for at in range(MANY)]
        codes: list[int] = []
        answered = threading.Thread(target=lambda: codes.extend(map(answer, wires)))
        answered.start()
        served = 0
        while answered.is_alive():
            client.quiet()  # a PINGREQ and its answer
            served += 1
        assert codes == [0x86] * MANY
        assert served > 3 * MANY
        for wire in wires:
            wire.close()


def test_addresses_have_their_turns(tmp_path: Path) -> None:
    """Whoever comes from another address than a flood of logins does not wait for its end."""
    with broker("--config", configured(tmp_path)) as running:
        wires = [login(running, "alice", b"wrong") for _ in range(MANY)]
        other = login(running, "alice", b"secret", "127.0.0.2")
        assert answer(other) == 0
        for wire in wires:
            wire.setblocking(False)
        done = 0
        for wire in wires:
            with suppress(BlockingIOError):
                done += answer(wire) == 0x86
        assert done < MANY // 2
        for wire in (*wires, other):
            wire.close()


def test_right_password_is_computed_once(tmp_path: Path) -> None:
    """Again and again the right one, while more wrong ones are waiting than are checked in that time."""
    with broker("--config", configured(tmp_path)) as running:
        with closing(login(running, "alice", b"secret")) as first:
            assert answer(first) == 0
        wires = [login(running, "alice", b"wrong") for _ in range(MANY)]
        for _ in range(10):
            with closing(login(running, "alice", b"secret")) as again:
                assert answer(again) == 0
        wires[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            wires[-1].recv(1)
        for wire in wires:
            wire.close()


def test_what_a_client_sends_before_its_password_is_checked_is_handled_after_it(tmp_path: Path) -> None:
    with broker("--config", configured(tmp_path)) as running, closing(login(running, "alice", b"secret")) as wire:
        wire.sendall(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")]).write())
        wire.sendall(mqtt5.PublishPacket("t", b"x").write())
        data = b""
        while b"\x00\x01t\x00x" not in data:
            data += wire.recv(4096)
        assert data[0] == 0x20
        assert b"\x90" in data


def test_client_that_leaves_while_its_password_is_checked_is_forgotten(tmp_path: Path) -> None:
    with broker("--config", configured(tmp_path)) as running:
        for _ in range(MANY):
            login(running, "alice", b"secret").close()
        with closing(login(running, "alice", b"secret", "127.0.0.2")) as wire:
            assert answer(wire) == 0
    assert running.errors == ""


def test_broker_that_checks_passwords_ends_at_once(tmp_path: Path) -> None:
    with broker("--config", configured(tmp_path)) as running:
        wires = [login(running, "alice", b"wrong") for _ in range(MANY)]
        running.process.terminate()
        assert running.process.wait(WAIT_S) == 0
        for wire in wires:
            wire.close()
    assert running.errors == ""


@pytest.mark.needs("mosquitto", "mosquitto_pub")
@pytest.mark.parametrize("options", [[], ["-H", "sha512"]], ids=["pbkdf2", "sha512"])
def test_file_of_mosquitto_passwd_and_its_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """... and lines that brokerbed adds to it."""
    config = configured(tmp_path)
    (tmp_path / "users").unlink()
    users = tmp_path / "users"
    subprocess.run([path_of("mosquitto_passwd"), *options, "-c", "-b", users, "bob", "of bob"], check=True)
    assert passwd(monkeypatch, users, "carol", text="of carol\n") == 0
    with broker("--config", config) as running:
        for user, password, code in (("bob", "of bob", 0), ("carol", "of carol", 0), ("bob", "of carol", 5)):
            publishing = [path_of("mosquitto_pub"), "-p", str(running.ports["mqtt"]), "-t", "t", "-m", "x"]
            done = subprocess.run([*publishing, "-u", user, "-P", password], capture_output=True, timeout=WAIT_S)
            assert (done.returncode == 0) == (code == 0), done.stderr


def passwd(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path, text: str = "") -> int:
    """The command, with this on its standard input; its exit code."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return dispatch(["passwd", *map(str, arguments)])


def test_passwd_adds_changes_and_removes_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = tmp_path / "users"
    assert passwd(monkeypatch, users, "alice", text="one\n") == 0
    assert users.stat().st_mode & 0o777 == 0o600
    first = users.read_text()
    assert passwd(monkeypatch, users, "bob", text="two\n") == 0
    assert users.read_text().startswith(first)
    users.chmod(0o640)
    assert passwd(monkeypatch, users, "alice", text="three\n") == 0
    assert [line.partition(":")[0] for line in users.read_text().splitlines()] == ["bob", "alice"]
    assert first not in users.read_text()
    assert parse_users(users.read_text()).accepts("alice", b"three")
    assert users.stat().st_mode & 0o777 == 0o640
    assert passwd(monkeypatch, users, "bob", "--delete") == 0
    assert [line.partition(":")[0] for line in users.read_text().splitlines()] == ["alice"]
    assert list(tmp_path.iterdir()) == [users]


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["alice"], "", "a password is needed"),
        (["alice"], "\n", "a password is needed"),
        (["a:b"], "x\n", "a user name has no colon"),
        (["#a"], "x\n", "a user name has no colon"),
        (["alice", "--delete"], "", "there is no user alice"),
    ],
)
def test_mistake_with_passwd_is_one_sentence_and_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
    message: str,
) -> None:
    assert passwd(monkeypatch, tmp_path / "users", *arguments, text=text) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert message in errors
    assert list(tmp_path.iterdir()) == []
