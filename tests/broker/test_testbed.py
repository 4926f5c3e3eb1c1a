"""A broker as the testbed uses it: its log after a kill, its metrics, its random numbers, and its end with a pipe."""

import os
import subprocess
from contextlib import AbstractContextManager, closing
from pathlib import Path

import mqtt5
import pytest

from brokerbed.broker.runtime.settings import settings
from brokerbed.log.reader import read
from brokerbed.log.record import RECORD
from tests.broker.running import COMMAND, WAIT_S, Running, broker, listening, metric, metrics, until
from tests.durability.stores import join, kill
from tests.mqtt.dial import Dial

UNDER_WAY, CONNECTED = "brokerbed_messages_under_way", "brokerbed_link_connected"


def configured(folder: Path, text: str) -> Path:
    file = folder / "broker.toml"
    file.write_text(text)
    return file


def dialling(running: Running) -> AbstractContextManager[Dial]:
    return closing(Dial(running.ports["mqtt"]))


# -- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, RECORD.size, RECORD.size * 3 // 2])
def test_log_cut_short_by_a_kill_is_completed_at_the_next_start(tmp_path: Path, cut: int) -> None:
    """A kill amidst appending is rare; so what it would have kept from the file is cut off afterwards."""
    config, data = configured(tmp_path, "testbed = true\n"), tmp_path / "data"
    with broker("--config", config, "--data", data) as running, dialling(running) as dial:
        client = join(dial, "me")
        client.subscribe("t")
        client.publish("t", b"me 7", qos=1)  # its turn has three records
        kill(running)
    records = data / "log.1.records"
    os.truncate(records, records.stat().st_size - cut)
    with (data / "log.1.names").open("a") as names:
        names.write('{"name": 99, "is": "h')  # nor does half a name do harm
    with broker("--config", config, "--data", data):
        pass
    story = [(row["event"], row["client"], row["number"]) for row in read(data, "b").to_pylist()]
    assert story == [
        ("started", None, None), ("connected", "me", None), ("subscribed", "me", None), ("identified", "me", 7),
        ("received", "me", None), ("sent", "me", None), ("started", None, None), ("subscribed", "me", None),
    ]  # fmt: skip


@pytest.mark.parametrize("qos", [0, 1])
def test_number_that_no_publisher_has_is_not_logged_as_one(tmp_path: Path, qos: int) -> None:
    """Any client may send what looks like an identity; the record's field has 31 bits for its number."""
    config, data = configured(tmp_path, "testbed = true\n"), tmp_path / "data"
    foreign = [
        b"2147483648",
        b"99999999999",
        b"9" * 5000,
        b"007",
        b"-1",
        b"+1",
        b"1.0",
        b"1e3",
        b"",
        b"\xd9\xa1",
        b"\xff",
    ]
    with broker("--config", config, "--data", data) as running, dialling(running) as dial:
        client = dial.v5("me")
        for number in (b"0", *foreign, b"2147483647"):
            client.publish("t", b"me " + number, qos)
            client.publish("t", b"me " + number + b" ...", qos)
    rows = read(data, "b").to_pylist()
    assert [row["number"] for row in rows if row["event"] == "identified"] == [0, 0, 2147483647, 2147483647]
    assert max(row["sequence"] or 0 for row in rows) == 2 * len(foreign) + 4
    assert running.errors == ""


@pytest.mark.parametrize("number", ["9" * 16, "9" * 17, "9" * 19, "9" * 5000])
@pytest.mark.parametrize("qos", [0, 1])
def test_identity_too_long_for_the_log_is_a_protocol_error(tmp_path: Path, qos: int, number: str) -> None:
    """Of a message from a link, which is whoever says so."""
    with broker("--data", tmp_path) as running, dialling(running) as dial:
        link = dial.v5("$link/x", user_properties=[("overlay-name", "x"), ("overlay-path", "x")])
        tagged = mqtt5.PublishPacket(
            "t", b"x", qos=mqtt5.QoS(qos), packet_id=qos or None, user_properties=[("overlay-message", f"x.1.{number}")]
        )
        link.send(tagged.write())
        if len(number) > 16:
            link.refused(0x82)
        else:
            link.ping()
    assert running.errors == ""
    sequences = [row["sequence"] for row in read(tmp_path, "b").to_pylist() if row["event"] == "received"]
    assert sequences == ([int(number)] if len(number) == 16 else [])


@pytest.mark.parametrize("durability", ["memory", "process"])
def test_log_has_what_a_killed_broker_answered(tmp_path: Path, durability: str) -> None:
    config, data = configured(tmp_path, "testbed = true\n"), tmp_path / "data"
    options = ("--config", config, "--data", data, "--durability", durability)
    with broker(*options) as running, dialling(running) as dial:
        client = join(dial, "me")
        for number in range(20):
            client.publish("t", b"me %d" % number, qos=1)
        kill(running)
    events = [(row["event"], row["number"]) for row in read(data, "b").to_pylist()]
    assert [number for event, number in events if event == "identified"] == list(range(20))
    assert [event for event, _ in events].count("received") == 20


# -- metrics ----------------------------------------------------------------------------------------------------------


def idle(running: Running) -> None:
    until(lambda: metric(running, UNDER_WAY) == 0, "coming to rest")


def test_messages_under_way_are_counted_until_nothing_is_left_to_do(tmp_path: Path) -> None:
    service = '[service]\nbroker_in = {mean_s = 0.3, law = "deterministic"}\n'
    config = configured(tmp_path, service)
    with broker("--metrics-port", "0", "--config", config) as running, dialling(running) as dial:
        subscriber = join(dial, "subscriber")
        subscriber.subscribe("t", qos=1)
        subscriber.drop()
        assert metric(running, UNDER_WAY) == 0
        publisher = join(dial, "publisher")
        publisher.publish("t", b"", qos=1)
        publisher.publish("t", b"", qos=1)
        assert metric(running, UNDER_WAY) == 2  # in the service, or already queued
        until(lambda: metric(running, "brokerbed_session_queue_messages") == 2, "queueing")
        assert metric(running, UNDER_WAY) == 2
        subscriber = join(dial, "subscriber")
        sent = [subscriber.expect(mqtt5.PublishPacket) for _ in range(2)]
        assert metric(running, "brokerbed_session_queue_messages") == 0
        assert metric(running, UNDER_WAY) == 2  # not acknowledged
        for packet in sent:
            assert packet.packet_id is not None
            subscriber.send(mqtt5.PubAckPacket(packet.packet_id).write())
        idle(running)


def test_message_in_the_service_of_a_link_is_under_way(tmp_path: Path) -> None:
    service = '[service]\nlink = {mean_s = 0.5, law = "deterministic"}\n'
    with broker("--name", "root") as root:
        options = ("--config", configured(tmp_path, service), "--parent", f"127.0.0.1:{root.ports['mqtt']}")
        with broker("--metrics-port", "0", *options) as running, dialling(running) as dial:
            until(lambda: metric(running, CONNECTED, peer="root") == 1, "the link")
            join(dial, "me").publish("t", b"", qos=0)
            until(lambda: metric(running, UNDER_WAY) == 1, "service")
            idle(running)
            assert metric(running, "brokerbed_link_messages_total", kind="notification") == 1


def test_links_are_connected_or_not() -> None:
    with broker("--name", "root", "--metrics-port", "0") as root:
        parent = f"127.0.0.1:{root.ports['mqtt']}"
        with broker("--name", "leaf", "--metrics-port", "0", "--parent", parent) as leaf:
            until(lambda: metric(root, CONNECTED) == 1, "the link at the parent")
            until(lambda: metric(leaf, CONNECTED) == 1, "the link at the child")
            for running, name, peer in ((root, "root", "leaf"), (leaf, "leaf", "root")):
                links = [it.labels for it in metrics(running) if it.name == CONNECTED]
                assert links == [{"broker": name, "peer": peer}]
            kill(root)
            until(lambda: metric(leaf, CONNECTED) == 0, "losing the link")
            assert [it.labels["peer"] for it in metrics(leaf) if it.name == CONNECTED] == ["root"]


@pytest.mark.parametrize(("text", "peer"), [("", "127.0.0.1:1"), ('[parent]\nname = "root"\n', "root")])
def test_parent_that_was_never_reached_has_its_address_or_its_given_name(tmp_path: Path, text: str, peer: str) -> None:
    options = ("--parent", "127.0.0.1:1", "--config", configured(tmp_path, text))
    with broker("--metrics-port", "0", *options) as running:
        links = [(it.labels["peer"], it.value) for it in metrics(running) if it.name == CONNECTED]
    assert links == [(peer, 0)]


def test_lag_of_the_loop_is_sampled() -> None:
    with broker("--metrics-port", "0") as running:
        until(lambda: metric(running, "brokerbed_loop_lag_samples_total") >= 3, "sampling")
        first = metric(running, "brokerbed_loop_lag_seconds_total")
        running.process.send_signal(19)  # SIGSTOP: it is late now
        try:
            os.waitid(os.P_PID, running.process.pid, os.WSTOPPED)
            held_s = 0.5
            with pytest.raises(subprocess.TimeoutExpired):
                running.process.wait(held_s)
        finally:
            running.process.send_signal(18)
        until(lambda: metric(running, "brokerbed_loop_lag_seconds_total") > first + held_s - 0.2, "noticing")


# -- random numbers ---------------------------------------------------------------------------------------------------

STAGES = """[service]
seed = {}
broker_in = {{mean_s = 1.0}}
link = {{mean_s = 1.0}}
sessions = {{s1 = {{mean_s = 1.0}}, s2 = {{mean_s = 1.0}}}}
"""


def draws(folder: Path, seed: str, name: str = "b") -> list[tuple[int, ...]]:
    """What each stage draws first, in another life of the broker each time."""
    options = ["--config", str(configured(folder, STAGES.format(seed))), "--name", name, "--data", str(folder / name)]
    config = settings(options).broker
    assert config.service_in is not None
    assert config.service_link is not None
    stages = [config.service_in, config.service_link, *config.session_service.values()]
    return [tuple(stage() for _ in range(3)) for stage in stages]


def test_every_stage_of_every_life_has_a_stream_of_its_own(tmp_path: Path) -> None:
    lives = [draws(tmp_path, "1"), draws(tmp_path, "1"), draws(tmp_path, "1", "other"), draws(tmp_path, '"text 2"')]
    everything = [stage for life in lives for stage in life]
    assert len(set(everything)) == len(everything) == 16
    (tmp_path / "again").mkdir()
    assert draws(tmp_path / "again", "1") == lives[0]


# -- its end ----------------------------------------------------------------------------------------------------------


def piped(config: Path) -> subprocess.Popen[str]:
    arguments = [str(COMMAND), "broker", "--port", "0", "--config", str(config)]
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_broker_of_the_testbed_ends_with_the_pipe_that_is_its_input(tmp_path: Path) -> None:
    process = piped(configured(tmp_path, "testbed = true\n"))
    running = listening(process)
    dial = Dial(running.ports["mqtt"])
    assert process.stdin is not None
    process.stdin.write("what is said does not matter\n")
    process.stdin.flush()
    client = join(dial, "me")
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(WAIT_S) == 0
    assert client.expect(mqtt5.DisconnectPacket).reason_code == mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN
    assert process.stderr is not None
    assert process.stderr.read() == ""
    dial.close()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_other_brokers_do_not_care_for_their_input(tmp_path: Path) -> None:
    process = piped(configured(tmp_path, ""))
    try:
        running = listening(process)
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        dial = Dial(running.ports["mqtt"])
        join(dial, "me").publish("t", b"", qos=1)
        dial.close()
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def test_broker_of_the_testbed_without_a_pipe_stays(tmp_path: Path) -> None:
    with broker("--config", configured(tmp_path, "testbed = true\n")) as running, dialling(running) as dial:
        join(dial, "me")
        assert running.process.poll() is None
