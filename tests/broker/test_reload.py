"""SIGHUP: other passwords, rules and certificates come into force, for those who are connected, too; mistakes do not."""

import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mqtt5
import pytest

from brokerbed.broker.core.passwords import password_line
from tests.broker.certificates import Authority
from tests.broker.running import Running, broker
from tests.broker.test_access_ways import VERSIONS, Ground
from tests.mqtt.dial import unique

SALT = b"0123456789abcdef"
RULES = "user alice\ntopic readwrite a/#\nuser bob\ntopic readwrite a/#\ntopic readwrite b/#\n"
NARROW = "user alice\ntopic readwrite a/#\nuser bob\ntopic readwrite b/#\n"


def write(folder: Path, rules: str = RULES, **passwords: str) -> Path:
    users = {"alice": "alice", "bob": "bob"} | passwords
    lines = [password_line(name, password, SALT) for name, password in users.items() if password]
    (folder / "users").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "access").write_text(rules, encoding="utf-8")
    settings = (
        'password_file = "users"\naccess_file = "access"\n[limits]\nconnect_timeout_s = 100\n'  # for busy machines
    )
    (folder / "broker.toml").write_text(settings, encoding="utf-8")
    return folder / "broker.toml"


def reload(running: Running) -> str:
    """The sentence with which the broker answers the signal."""
    running.process.send_signal(signal.SIGHUP)
    assert running.process.stderr is not None
    return running.process.stderr.readline()


@contextmanager
def grounds(running: Running) -> Iterator[list[Ground]]:
    both = [Ground(running, version) for version in VERSIONS]
    yield both
    for ground in both:
        ground.close()


def test_user_who_is_gone_or_has_another_password_is_disconnected_and_others_are_not(tmp_path: Path) -> None:
    config = write(tmp_path, carol="carol")
    with broker("--config", config) as running, grounds(running) as both:
        kept = [ground.client("alice") for ground in both]
        gone = [ground.open("bob", unique(), will="b/will")[2] for ground in both]
        changed = [ground.client("carol") for ground in both]
        for client in kept:
            client.subscribe("a/#")
        watcher = both[0].client("alice")
        write(tmp_path, "user alice\ntopic readwrite #\n", bob="", carol="another")
        assert "clients that have to log in again: 4\n" in reload(running)
        for client in kept:
            client.quiet()
        watcher.subscribe("b/will")
        for number, client in enumerate((*gone, *changed)):
            assert (b"\x87" in client.closed()) is (VERSIONS[number % 2] == 5)  # 3.1.1 has no such packet
        for ground in both:
            assert ground.open("bob", unique())[0] != 0
            assert ground.open("carol", unique())[0] != 0
        assert watcher.take_all() == []  # no will of those who are gone


def test_rules_that_are_narrower_take_what_was_allowed_before(tmp_path: Path) -> None:
    """Subscriptions, what waits for a client that is away, publications; the rest of the session stays."""
    config = write(tmp_path)
    with broker("--config", config, "--data", tmp_path / "data") as running, grounds(running) as both:
        for ground in both:
            away = ground.client("bob", f"away{ground.version}", clean=False)
            away.subscribe("a/#", "b/#")
            away.disconnect()
            near = ground.client("bob")
            near.subscribe("a/#", "b/#")
            for at in range(3):
                ground.client("alice").publish("a/x", b"secret", 1)
                ground.client("bob").publish("b/x", b"mine %d" % at, 1)
            assert sorted(near.take_all()) == [b"mine 0", b"mine 1", b"mine 2", b"secret", b"secret", b"secret"]
            write(tmp_path, NARROW)
            assert "clients that have to log in again: 0\n" in reload(running)
            ground.client("alice").publish("a/x", b"secret", 1)
            assert near.take_all() == []
            code, is_present, again = ground.open("bob", f"away{ground.version}", clean=False)
            assert (code, is_present) == (0, True)
            assert again.take_all() == [b"mine 0", b"mine 1", b"mine 2"]
            assert not ground.delivered("alice", "a/x", lambda: ground.publishes("a/x", 0))  # noqa: B023
            write(tmp_path)
            reload(running)
            assert list(near.subscribe("a/#")) == [2]


MISTAKES = [
    ("users", "bob", "users: line 1 is not a user name"),
    ("access", "topic", "access: line 1 is none of"),
    ("broker.toml", "= 3", "not valid TOML"),
    ("broker.toml", 'password_file = "nowhere"', "cannot be read"),
    ("broker.toml", "colour = 1", "unknown key colour"),
    ("broker.toml", 'tls_cert = "a"\ntls_key = "b"', "cannot be used"),
    ("broker.toml", 'password_file = "users"\n[[listener]]\nname = "x"\nport = 0', "needs a restart"),
    ("broker.toml", 'password_file = "users"\nlink_secret_file = "users"', "needs a restart"),
]


def test_file_that_is_wrong_changes_nothing_and_is_named_in_one_sentence(tmp_path: Path) -> None:
    config = write(tmp_path)
    with broker("--config", config) as running, grounds(running) as both:
        client = both[1].client("bob")
        for name, content, said in MISTAKES:
            write(tmp_path, NARROW, bob="another")
            (tmp_path / name).write_text(content)
            line = reload(running)
            assert said in line
            assert line.endswith("; the settings so far stay in force\n")
            client.quiet()
        assert both[1].delivered("alice", "a/x", lambda: both[1].publishes("a/x", 1))


@pytest.mark.needs("openssl")
def test_new_certificate_is_shown_to_those_who_come_and_nobody_is_disconnected(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    first.sign("server", "localhost")
    (tmp_path / "broker.toml").write_text('tls_cert = "server.pem"\ntls_key = "server.key"\n')
    old, new = (ssl.create_default_context(cafile=str(tmp_path / f"{it.name}.pem")) for it in (first, second))
    with broker("--config", tmp_path / "broker.toml") as running:

        def connected(context: ssl.SSLContext) -> ssl.SSLSocket:
            wire = socket.create_connection(("localhost", running.ports["mqtt"]), 60)
            secure = context.wrap_socket(wire, server_hostname="localhost")
            secure.sendall(mqtt5.ConnectPacket("", clean_start=True).write())
            assert secure.recv(100)[3] == 0
            return secure

        before = connected(old)
        second.sign("server", "localhost")
        assert "were read again; clients that have to log in again: 0" in reload(running)
        after = connected(new)
        with pytest.raises(ssl.SSLCertVerificationError):
            connected(old)
        before.sendall(b"\xc0\x00")
        assert before.recv(2) == b"\xd0\x00"
        before.close()
        after.close()


def test_without_a_configuration_the_signal_ends_the_broker() -> None:
    """... as it does where a terminal is closed."""
    with broker() as running:
        running.process.send_signal(signal.SIGHUP)
        assert running.process.wait(60) == -signal.SIGHUP
