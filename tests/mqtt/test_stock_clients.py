"""Stock clients do not notice the difference: mosquitto_pub and mosquitto_sub, 3.1.1 and 5, in all combinations."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mqtt.dial import Dial, unique
from tests.mqtt.programs import VERSIONS, Listener, publish, subscribe
from tests.mqtt.servers import Server, skip_on_mosquitto

pytestmark = pytest.mark.needs("mosquitto_pub")
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
BOTH_WAYS = pytest.mark.parametrize(
    ("sender", "receiver"), [("3.1.1", "3.1.1"), ("3.1.1", "5"), ("5", "3.1.1"), ("5", "5")]
)
SESSION = {"3.1.1": ["-c"], "5": ["-c", "-x", "60"]}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends the listeners of a test."""
    with ExitStack() as opened:
        yield opened


@BOTH_WAYS
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_message_passes(broker: Server, topic: str, sender: str, receiver: str, qos: str) -> None:
    with Listener(broker.port, receiver, "-t", topic, "-q", qos, "-F", "%t %q %r %p") as listener:
        publish(broker.port, sender, "-t", topic, "-q", qos, "-m", "hello")
        assert listener.line().decode() == f"{topic} {qos} 0 hello"


@EACH_VERSION
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_many_messages_pass_in_order(broker: Server, topic: str, version: str, qos: str) -> None:
    if (version, qos) == ("5", "2"):
        skip_on_mosquitto("it loses messages of such a burst now and then (MQTT-4.3.3-8)")
    lines = [b"%d" % number for number in range(500)]
    with Listener(broker.port, version, "-t", topic, "-q", qos) as listener:
        publish(broker.port, version, "-t", topic, "-q", qos, "-l", data=b"\n".join(lines) + b"\n")
        assert [listener.line() for _ in lines] == lines


@EACH_VERSION
def test_retained_message_is_kept_and_cleared(broker: Server, topic: str, version: str) -> None:
    publish(broker.port, version, "-t", topic, "-r", "-q", "1", "-m", "kept")
    assert subscribe(broker.port, version, "-t", topic, "-C", "1", "-F", "%r %p") == b"1 kept\n"
    publish(broker.port, version, "-t", topic, "-r", "-n")
    with Listener(broker.port, version, "-t", topic, "-F", "%r %p") as listener:
        publish(broker.port, version, "-t", topic, "-m", "live")
        assert listener.line() == b"0 live"


@EACH_VERSION
def test_wildcards_match(broker: Server, version: str) -> None:
    word = unique("w")
    with Listener(broker.port, version, "-t", f"{word}/+/c", "-t", f"{word}/d/#", "-F", "%t %p") as listener:
        for number, name in enumerate(("b", "b/c", "b/c/d", "d", "d/e/f")):
            publish(broker.port, version, "-t", f"{word}/{name}", "-m", str(number))
        expected = [f"{word}/b/c 1", f"{word}/d 3", f"{word}/d/e/f 4"]
        assert [listener.line().decode() for _ in expected] == expected


@EACH_VERSION
@pytest.mark.parametrize("retain", [False, True])
def test_will_of_a_killed_client_is_published(broker: Server, topic: str, version: str, retain: bool) -> None:
    flags = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1"] + ["--will-retain"] * retain
    with (
        Listener(broker.port, version, "-t", topic, "-q", "1", "-F", "%q %p") as watching,
        Listener(broker.port, version, "-t", unique("other"), *flags) as dying,
    ):
        dying.kill()
        assert watching.line() == b"1 gone"
    if retain:
        assert subscribe(broker.port, version, "-t", topic, "-C", "1") == b"gone\n"


@EACH_VERSION
def test_will_of_a_client_that_disconnects_is_not_published(broker: Server, topic: str, version: str) -> None:
    with Listener(broker.port, version, "-t", topic) as watching:
        publish(
            broker.port, version, "-t", topic, "-m", "work", "--will-topic", topic, "--will-payload", "gone"
        )  # fmt: skip
        publish(broker.port, version, "-t", topic, "-m", "after")
        assert [watching.line(), watching.line()] == [b"work", b"after"]


@BOTH_WAYS
@pytest.mark.parametrize("qos", ["0", "2"])
def test_large_payload_arrives_intact(
    broker: Server, topic: str, tmp_path: Path, sender: str, receiver: str, qos: str
) -> None:
    payload = b"".join(hashlib.sha512(b"%d" % number).digest() for number in range(16_384))
    assert len(payload) == 1 << 20
    file = tmp_path / "payload"
    file.write_bytes(payload)
    with Listener(broker.port, receiver, "-t", topic, "-q", qos, "-F", "%x") as listener:
        publish(broker.port, sender, "-t", topic, "-q", qos, "-f", str(file))
        assert bytes.fromhex(listener.line().decode()) == payload


@BOTH_WAYS
@pytest.mark.parametrize("qos", ["1", "2"])
def test_messages_wait_for_a_persistent_session(
    broker: Server, topic: str, sender: str, receiver: str, qos: str
) -> None:
    session = [*SESSION[receiver], "-i", unique(), "-t", topic, "-q", qos]
    subscribe(broker.port, receiver, *session, "-E")
    for payload in ("1", "2", "3"):
        publish(broker.port, sender, "-t", topic, "-q", qos, "-m", payload)
    assert subscribe(broker.port, receiver, *session, "-C", "3") == b"1\n2\n3\n"


@EACH_VERSION
def test_many_messages_wait_in_order(broker: Server, topic: str, version: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(300))
    session = [*SESSION[version], "-i", unique(), "-t", topic, "-q", "1"]
    subscribe(broker.port, version, *session, "-E")
    publish(broker.port, version, "-t", topic, "-q", "1", "-l", data=lines)
    assert subscribe(broker.port, version, *session, "-C", "300") == lines


@EACH_VERSION
def test_shared_subscription_divides_the_work(broker: Server, topic: str, version: str, stack: ExitStack) -> None:
    members = [
        stack.enter_context(Listener(broker.port, version, "-t", f"$share/g/{topic}", "-q", "1")) for _ in range(2)
    ]
    everyone = stack.enter_context(Listener(broker.port, version, "-t", topic, "-q", "1"))
    lines = [b"%d" % number for number in range(20)]
    publish(broker.port, version, "-t", topic, "-q", "1", "-l", data=b"\n".join(lines) + b"\n")
    assert [everyone.line() for _ in lines] == lines
    taken = [[member.line()] for member in members]  # each has some
    while (left := 20 - sum(map(len, taken))) > 0:
        more = [member.waiting() for member in members]
        if not any(more):
            more[0] = [members[0].line()] if left else []
        for mine, new in zip(taken, more, strict=True):
            mine.extend(new)
    assert sorted(taken[0] + taken[1]) == sorted(lines)


def test_properties_pass(broker: Server, topic: str) -> None:
    properties = [
        ("content-type", "text/plain"), ("correlation-data", "42"), ("response-topic", "answer/here"),
        ("payload-format-indicator", "1"), ("message-expiry-interval", "1000"),
    ]  # fmt: skip
    arguments = [part for name, value in properties for part in ("-D", "publish", name, value)]
    for name, value in (("z", "1"), ("a", "2"), ("z", "1")):
        arguments += ["-D", "publish", "user-property", name, value]
    with Listener(broker.port, "5", "-t", topic, "-q", "1", "-F", "%C|%D|%R|%F|%P|%p") as listener:
        publish(broker.port, "5", "-t", topic, "-q", "1", "-m", "x", *arguments)
        assert listener.line() == b"text/plain|42|answer/here|1|z:1 a:2 z:1|x"


def test_subscription_identifier_passes(broker: Server, topic: str) -> None:
    arguments = ["-t", topic, "-D", "subscribe", "subscription-identifier", "42", "-F", "%S %p"]
    with Listener(broker.port, "5", *arguments) as listener:
        publish(broker.port, "5", "-t", topic, "-m", "x")
        assert listener.line() == b"42 x"


def test_topic_alias_of_a_publisher_works(broker: Server, topic: str) -> None:
    with Listener(broker.port, "5", "-t", topic, "-F", "%t %p") as listener:
        publish(broker.port, "5", "-t", topic, "-m", "x", "--repeat", "3", "-D", "publish", "topic-alias", "1")
        assert [listener.line().decode() for _ in range(3)] == [f"{topic} x"] * 3


def test_will_delay_is_respected(broker: Server, dial: Dial, topic: str) -> None:
    """Told by order alone: a message published after the end of the client comes before its delayed will."""
    witness = dial.v5()
    witness.subscribe(topic)
    arguments = ["--will-topic", topic, "--will-payload", "gone", "-D", "will", "will-delay-interval", "1", "-x", "60"]
    with Listener(broker.port, "5", "-t", unique("other"), *arguments) as dying:
        dying.kill()
    witness.publish(topic, b"after", 1)
    assert [witness.take().payload, witness.take().payload] == [b"after", b"gone"]
