"""Every way in which a message or a right could pass, for two users, in MQTT 3.1.1 and 5, against a running broker.

alice may read and write below a/, bob below b/; everybody may read what is below news/. Each row of the table is one way
to get at something, tried by bob at what is his own (it must work) and at what is alice's (it must not).
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import mqtt5
import pytest

from brokerbed.broker.core.passwords import password_line
from tests.broker.running import Running, broker
from tests.mqtt.client5 import Client5
from tests.mqtt.client311 import Client311, Connack, Will, connect
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import ConnectionEndedError

RULES = "user alice\ntopic readwrite a/#\nuser bob\ntopic readwrite b/#\npattern read news/#\n"
VERSIONS = (4, 5)
FOREVER_S = 0xFFFF_FFFF
AnyClient = Client311 | Client5


def configured(folder: Path, rules: str = RULES) -> Path:
    """The configuration of a broker with both users; the password of each is the user's name."""
    lines = [password_line(name, name, secrets.token_bytes(12)) for name in ("alice", "bob", "leaf")]
    (folder / "users").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "access").write_text(rules, encoding="utf-8")
    file = folder / "broker.toml"
    file.write_text('password_file = "users"\naccess_file = "access"\n', encoding="utf-8")
    return file


@dataclass
class Ground:
    """A running broker, and clients of both users in one version of MQTT."""

    running: Running
    version: int
    dial: Dial = field(init=False)

    def __post_init__(self) -> None:
        self.dial = Dial(self.running.ports["mqtt"])

    def open(
        self, user: str, client_id: str, clean: bool = True, will: str | None = None, retain: bool = False
    ) -> tuple[int, bool, AnyClient]:
        """CONNECT; the reason code of the answer (0 or not), whether a session was present, and the client."""
        if self.version == 4:
            old = self.dial.open311()
            last = Will(will, b"secret", 1, retain) if will else None
            old.send(connect(client_id, clean=clean, will=last, username=user, password=user.encode()))
            connack = old.expect(Connack)
            return connack.code, connack.session_present, old
        new = self.dial.open5()
        last5 = mqtt5.Will(will, payload=b"secret", qos=mqtt5.QoS(1), retain=retain) if will else None
        new.send(
            mqtt5.ConnectPacket(
                client_id, clean_start=clean, keep_alive=60, will=last5, username=user, password=user.encode(),
                session_expiry_interval=0 if clean else FOREVER_S,
            ).write()
        )  # fmt: skip
        answer = new.expect(mqtt5.ConnAckPacket)
        return int(answer.reason_code), answer.session_present, new

    def client(self, user: str, client_id: str | None = None, clean: bool = True) -> AnyClient:
        code, _, client = self.open(user, client_id or unique(user), clean)
        assert code == 0
        return client

    def publishes(self, topic: str, qos: int, retain: bool = False) -> None:
        """bob publishes; that 3.1.1 ends the connection where it cannot say no is as it should be."""
        with suppress(ConnectionEndedError):
            self.client("bob").publish(topic, b"secret", qos, retain=retain)

    def delivered(self, owner: str, topic: str, act: Callable[[], None]) -> bool:
        """Whether the owner of a topic, subscribed to it, gets something when bob acts."""
        watcher = self.client(owner)
        assert list(watcher.subscribe(topic)) == [2]
        act()
        return b"secret" in watcher.take_all()

    def kept(self, owner: str, topic: str, act: Callable[[], None]) -> bool:
        """... whether something is retained there afterwards."""
        act()
        watcher = self.client(owner)
        watcher.subscribe(topic)
        found = b"secret" in watcher.take_all()
        self.client(owner).publish(topic, b"", 1, retain=True)
        return found

    def reads(self, topic_filter: str, owner: str, topic: str) -> bool:
        """Whether bob, subscribed to a filter, gets what the owner of a topic publishes and has retained there."""
        publisher = self.client(owner)
        publisher.publish(topic, b"secret", 1, retain=True)
        spy = self.client("bob")
        spy.subscribe(topic_filter)
        publisher.publish(topic, b"secret", 1)
        found = b"secret" in spy.take_all()
        publisher.publish(topic, b"", 1, retain=True)
        return found

    def wills(self, topic: str, retain: bool = False) -> None:
        code, _, client = self.open("bob", unique("will"), will=topic, retain=retain)
        client.close()
        if code == 0:  # the broker has seen the end of the connection when the next one is served
            self.client("bob").take_all()

    def takes_over(self, owner: str, topic: str, clean: bool = False) -> bool:
        """Whether bob gets at a session of the owner, in which something waits, by its client id."""
        client_id = unique("session")
        session = self.client(owner, client_id, clean=False)
        session.subscribe(topic)
        session.disconnect()
        self.client(owner).publish(topic, b"secret", 1)
        code, is_present, thief = self.open("bob", client_id, clean=clean)
        got = code == 0 and b"secret" in thief.take_all()
        thief.close()
        if owner != "bob":  # it is still there for its owner
            mine, was_present, owned = self.open(owner, client_id, clean=False)
            assert (mine, was_present) == (0, True)
            assert b"secret" in owned.take_all()
        return is_present or got

    def close(self) -> None:
        self.dial.close()


Way = Callable[[Ground, str, str], bool]  # what is tried with a topic and its owner; whether it worked

WAYS: dict[str, Way] = {
    "publish at QoS 0": lambda it, topic, owner: it.delivered(owner, topic, lambda: it.publishes(topic, 0)),
    "publish at QoS 1": lambda it, topic, owner: it.delivered(owner, topic, lambda: it.publishes(topic, 1)),
    "publish at QoS 2": lambda it, topic, owner: it.delivered(owner, topic, lambda: it.publishes(topic, 2)),
    "publish retained": lambda it, topic, owner: it.kept(owner, topic, lambda: it.publishes(topic, 1, retain=True)),
    "will": lambda it, topic, owner: it.delivered(owner, topic, lambda: it.wills(topic)),
    "retained will": lambda it, topic, owner: it.kept(owner, topic, lambda: it.wills(topic, retain=True)),
    "subscribe": lambda it, topic, owner: it.reads(topic, owner, topic),
    "subscribe with +": lambda it, topic, owner: it.reads(f"{topic[0]}/+", owner, topic),
    "subscribe with #": lambda it, topic, owner: it.reads(f"{topic[0]}/#", owner, topic),
    "shared group": lambda it, topic, owner: it.reads(f"$share/g/{topic}", owner, topic),
    "shared group with #": lambda it, topic, owner: it.reads(f"$share/g/{topic[0]}/#", owner, topic),
    "take-over of a session": lambda it, topic, owner: it.takes_over(owner, topic),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with broker("--config", configured(tmp_path_factory.mktemp("access"))) as it:
        yield it


@pytest.fixture(params=VERSIONS, ids=["3.1.1", "5"])
def ground(request: pytest.FixtureRequest, running: Running) -> Iterator[Ground]:
    it = Ground(running, request.param)
    yield it
    it.close()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_ones_own_can_be_had_and_what_is_anothers_cannot(ground: Ground, way: str) -> None:
    assert WAYS[way](ground, "b/x", "bob")
    assert not WAYS[way](ground, "a/x", "alice")


@pytest.mark.parametrize("topic_filter", ["#", "+/x", "+/#", "$share/g/#", "$share/g/+/x"])
def test_wildcards_that_reach_into_what_is_anothers_give_nothing(ground: Ground, topic_filter: str) -> None:
    assert not ground.reads(topic_filter, "alice", "a/x")


def test_clean_start_of_another_user_does_not_end_a_session(ground: Ground) -> None:
    assert not ground.takes_over("alice", "a/x", clean=True)


def test_another_user_cannot_throw_a_connected_client_out(ground: Ground) -> None:
    client_id = unique("busy")
    client = ground.client("alice", client_id)
    code, _, _ = ground.open("bob", client_id)
    assert code != 0
    client.subscribe("a/y")
    ground.client("alice").publish("a/y", b"still here", 1)
    assert client.take_all() == [b"still here"]


@pytest.mark.parametrize("topic", ["$SYS/broker/version", "$overlay/path", "$share/g/b/x"])
def test_topics_of_the_broker_itself_are_closed_to_publications_and_wills(tmp_path: Path, topic: str) -> None:
    """... though a rule allows everything: such a topic is nobody's."""
    rules = (
        "user bob\ntopic readwrite #\ntopic readwrite $SYS/#\ntopic readwrite $overlay/#\ntopic readwrite $share/#\n"
    )
    with broker("--config", configured(tmp_path, rules)) as it:
        for version in VERSIONS:
            ground = Ground(it, version)
            assert ground.open("bob", unique(), will=topic)[0] != 0
            for retain in (False, True):
                ground.publishes(topic, 0, retain)
            watcher = ground.client("bob")
            watcher.subscribe("$SYS/#", "$overlay/#", "#")
            assert watcher.take_all() == []
            watcher2 = ground.client("bob")
            assert tuple(watcher2.subscribe("$overlay/path")) in ((0x80,), (0x87,))
            ground.close()


def test_client_cannot_pose_as_a_link_of_its_own_broker(running: Running) -> None:
    """bob's password is not enough: without a link secret a link is a user, and has no more rights than it."""
    ground = Ground(running, 5)
    watcher = ground.client("alice")
    watcher.subscribe("a/x")
    spy = ground.dial.open5()
    properties = [("overlay-name", "b9"), ("overlay-instance", "1")]
    spy.send(
        mqtt5.ConnectPacket(
            "$link/b9", clean_start=True, username="bob", password=b"bob", user_properties=properties
        ).write()
    )
    spy.expect(mqtt5.ConnAckPacket)
    assert spy.subscribe("a/#", "#") == [0x87, 0x87]
    for qos in (0, 1):
        spy.publish("a/x", b"secret", qos, user_properties=[("overlay-message", "b9.1.0000000000000001")])
    assert watcher.take_all() == []
    ground.close()
    old = Ground(running, 4)
    assert old.open("bob", "$link/b9")[0] != 0
    old.close()


def test_restored_session_gets_nothing_that_changed_rules_forbid(tmp_path: Path) -> None:
    """bob could read a/#; messages wait for him; then he may not any more. In both versions, and at each QoS."""
    before = "user alice\ntopic readwrite a/#\nuser bob\ntopic read a/#\ntopic readwrite b/#\n"
    after = "user alice\ntopic readwrite a/#\nuser bob\ntopic readwrite b/#\n"
    with broker("--config", configured(tmp_path, before), "--data", tmp_path / "data") as it:
        for version in VERSIONS:
            ground = Ground(it, version)
            session = ground.client("bob", f"bob{version}", clean=False)
            session.subscribe("a/#", "b/#")
            ground.client("bob", f"group{version}", clean=False).subscribe("$share/g/a/#")
            session.disconnect()
            for qos in (1, 2):
                ground.client("alice").publish(f"a/{qos}", b"secret", qos)
                ground.client("bob").publish(f"b/{qos}", b"mine %d" % qos, qos)
            ground.close()
    with broker("--config", configured(tmp_path, after), "--data", tmp_path / "data", "--metrics-port", "0") as it:
        for version in VERSIONS:
            ground = Ground(it, version)
            ground.client("alice").publish("a/new", b"secret", 1)
            code, is_present, session = ground.open("bob", f"bob{version}", clean=False)
            assert (code, is_present) == (0, True)
            assert [it for it in session.take_all() if it == b"secret"] == []
            ground.client("alice").publish("a/new", b"secret", 1)
            ground.client("bob").publish("b/new", b"mine", 1)
            assert session.take_all() == [b"mine"]
            assert ground.client("bob", f"group{version}", clean=False).take_all() == []
            ground.close()


def test_without_a_password_file_and_without_anonymous_clients_nobody_gets_in(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("allow_anonymous = false\n", encoding="utf-8")
    with broker("--config", tmp_path / "broker.toml") as it:
        for version in VERSIONS:
            ground = Ground(it, version)
            assert ground.open("anybody", unique())[0] != 0
            ground.close()
    assert "no client can connect" in it.errors
