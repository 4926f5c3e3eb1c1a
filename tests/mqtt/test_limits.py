"""Limits of the server: it says what they are, and what goes beyond them is refused with the right reason code.

Clauses are those of the MQTT 5 standard. The server is one of its own, with low limits.
"""

import time
from collections.abc import Iterator

import pytest
from mqtt5 import PublishPacket, PubRecPacket, QoS

from tests.mqtt.client5 import Client5
from tests.mqtt.client311 import connect, publish
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import WAIT_S, packet
from tests.mqtt.servers import KIND, Limits, Server, mosquitto_departs, start

PACKET_BYTES, RECEIVE_MAXIMUM, CONNECTIONS, QUEUE, SUBSCRIPTIONS = 2000, 3, 20, 5, 10
KEEP_ALIVE_S = 10 if KIND == "mosquitto" else 1  # the lowest that can be set
SESSION_EXPIRY_S = 100

LOW = Limits(
    brokerbed=f"""
        packet_bytes_max = {PACKET_BYTES}
        receive_maximum = {RECEIVE_MAXIMUM}
        connections_max = {CONNECTIONS}
        queue_messages_max = {QUEUE}
        subscriptions_max = {SUBSCRIPTIONS}
        keep_alive_max_s = {KEEP_ALIVE_S}
        session_expiry_max_s = {SESSION_EXPIRY_S}
        topic_alias_maximum = 0
        connect_timeout_s = 1.0
    """,
    mosquitto=f"""
max_packet_size {PACKET_BYTES}
max_inflight_messages {RECEIVE_MAXIMUM}
max_connections {CONNECTIONS}
max_queued_messages {QUEUE}
max_keepalive {KEEP_ALIVE_S}
max_topic_alias 0
""",
)
REJECTING = Limits(brokerbed=f'queue_messages_max = {QUEUE}\nqueue_policy = "reject"\n', mosquitto="")
ONLY_OURS = pytest.mark.skipif(KIND != "brokerbed", reason="a setting of brokerbed")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with low limits."""
    server = start(tmp_path_factory.mktemp("strict"), LOW)
    yield server
    assert server.alive(), server.story()
    server.stop()


@pytest.fixture
def low(strict: Server) -> Iterator[Dial]:
    """Opens connections to it."""
    dial = Dial(strict.port)
    yield dial
    dial.close()


def test_connack_announces_the_limits_mqtt_3_2_2_3(low: Dial) -> None:
    connack = low.v5().connack
    assert connack.receive_max == RECEIVE_MAXIMUM
    assert connack.max_packet_size == PACKET_BYTES
    assert connack.topic_alias_max == 0


def test_packet_beyond_the_maximum_is_refused_mqtt_3_2_2_15(low: Dial) -> None:
    """The fixed header tells; the server need not wait for the rest."""
    bystander, client, old = low.v5(), low.v5(), low.v311()
    too_long = packet(0x30, bytes(PACKET_BYTES))[:10]
    client.send(too_long)
    client.refused(0x95)
    old.send(too_long)
    assert old.closed() == b""
    bystander.quiet()


def test_packet_of_the_maximum_is_taken_mqtt_3_2_2_15(low: Dial, topic: str) -> None:
    client = low.v5()
    client.subscribe(topic)
    overhead = len(PublishPacket(topic, bytes(1500)).write()) - 1500
    client.send(PublishPacket(topic, bytes(PACKET_BYTES - overhead)).write())
    assert len(client.take().payload) == PACKET_BYTES - overhead


def test_connect_beyond_the_maximum_is_refused_mqtt_3_1_4_2(low: Dial) -> None:
    connection = low.raw()
    connection.send(connect("x" * PACKET_BYTES))
    assert connection.closed()[3:4] != b"\x00"  # nothing, or a refusal


@mosquitto_departs("it neither answers nor disconnects (MQTT-3.3.4-7)")
def test_receive_maximum_exceeded_mqtt_3_3_4_7(low: Dial, topic: str) -> None:
    bystander, client = low.v5(), low.v5()
    for packet_id in range(1, RECEIVE_MAXIMUM + 2):
        client.send(PublishPacket(topic, b"x", qos=QoS.EXACTLY_ONCE, packet_id=packet_id).write())
    for packet_id in range(1, RECEIVE_MAXIMUM + 1):
        assert client.expect(PubRecPacket).packet_id == packet_id
    client.refused(0x93)
    bystander.quiet()


def test_duplicate_does_not_count_twice_mqtt_4_9_0_1(low: Dial, topic: str) -> None:
    """The window is full; a resent PUBLISH of it is no further one."""
    client = low.v5()
    for packet_id in range(1, RECEIVE_MAXIMUM + 1):
        client.send(PublishPacket(topic, b"x", qos=QoS.EXACTLY_ONCE, packet_id=packet_id).write())
        client.expect(PubRecPacket)
    client.send(PublishPacket(topic, b"x", qos=QoS.EXACTLY_ONCE, packet_id=1, duplicate=True).write())
    assert client.expect(PubRecPacket).packet_id == 1
    client.quiet()


def test_old_client_knows_no_receive_maximum(low: Dial, topic: str) -> None:
    """3.1.1 has none: its clients may have more open than MQTT 5 would allow."""
    client = low.v311()
    count = RECEIVE_MAXIMUM + 2
    client.send(*(publish(topic, b"x", 1, packet_id) for packet_id in range(1, count + 1)))
    for packet_id in range(1, count + 1):
        client.acknowledged(0x40, packet_id)


def test_alias_is_refused_when_there_are_none_mqtt_3_2_2_18(low: Dial, topic: str) -> None:
    client = low.v5()
    client.send(PublishPacket(topic, b"x", topic_alias=1).write())
    client.refused(0x94)


@pytest.mark.parametrize("asked", [0, 600, 65535])
def test_server_keep_alive_is_told_mqtt_3_2_2_21(low: Dial, asked: int) -> None:
    assert low.v5(keep_alive=asked).connack.server_keep_alive == KEEP_ALIVE_S


@ONLY_OURS
def test_server_keep_alive_is_enforced_mqtt_3_1_2_22(low: Dial) -> None:
    silent, busy = low.v5(keep_alive=600), low.v5(keep_alive=600)
    deadline = time.monotonic() + WAIT_S
    while silent.stays(0.25):
        assert time.monotonic() < deadline, "silent for much longer than the server's keep alive, and still connected"
        busy.quiet()
    silent.refused(0x8D)
    busy.quiet()


@ONLY_OURS
def test_session_expiry_is_told_when_lowered_mqtt_3_2_2_3_2(low: Dial) -> None:
    assert low.v5(session_expiry_interval=SESSION_EXPIRY_S + 1).connack.session_expiry_interval == SESSION_EXPIRY_S
    assert low.v5(session_expiry_interval=SESSION_EXPIRY_S).connack.session_expiry_interval in (None, SESSION_EXPIRY_S)


@ONLY_OURS
def test_silence_instead_of_connect_is_ended(low: Dial) -> None:
    """Connections that say nothing, or half a CONNECT, or dribble, do not stay for ever."""
    nothing, half, dribbling = low.raw(), low.raw(), low.raw()
    data = connect(unique())
    half.send(data[:5])
    for byte in data[:4]:
        dribbling.send(bytes([byte]))
    assert [nothing.closed(), half.closed(), dribbling.closed()] == [b"", b"", b""]


@ONLY_OURS  # Mosquitto's limit is that of a listener
def test_connections_beyond_the_limit_are_refused_mqtt_3_1_4_2(low: Dial) -> None:
    """Refused with a reason or just closed; those within the limit go on, and a place given up is free again."""
    clients: list[Client5] = []
    for _ in range(CONNECTIONS + 5):
        try:
            clients.append(low.v5())
        except (AssertionError, OSError):
            break
    assert 0 < len(clients) <= CONNECTIONS
    for client in clients:
        client.quiet()
    clients.pop().disconnect()
    low.v5().quiet()


@ONLY_OURS
def test_subscriptions_beyond_the_limit_are_refused_mqtt_3_9_3(low: Dial, topic: str) -> None:
    client = low.v5()
    codes = [client.subscribe(f"{topic}/{number}")[0] for number in range(SUBSCRIPTIONS + 2)]
    assert codes == [2] * SUBSCRIPTIONS + [0x97] * 2
    assert client.subscribe(f"{topic}/0") == [2]  # one that is there can be renewed
    client.unsubscribe(f"{topic}/0")
    assert client.subscribe(f"{topic}/new") == [2]
    client.publish(f"{topic}/new", b"x")
    assert client.take().payload == b"x"


@ONLY_OURS
def test_full_queue_drops_the_oldest(low: Dial, topic: str) -> None:
    client_id = unique()
    client = low.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic)
    client.disconnect()
    publisher = low.v5()
    for number in range(QUEUE + 3):
        assert publisher.publish(topic, b"%d" % number, 1) == 0
    client = low.v5(client_id, clean_start=False)
    assert [int(client.take().payload) for _ in range(QUEUE)] == list(range(3, QUEUE + 3))
    client.quiet()


@ONLY_OURS
@pytest.mark.parametrize("qos", [1, 2])
def test_full_queue_rejects_mqtt_3_4_2_1(tmp_path_factory: pytest.TempPathFactory, topic: str, qos: int) -> None:
    """With the policy `reject` the publisher is told (0x97), and what waits stays."""
    server = start(tmp_path_factory.mktemp("rejecting"), REJECTING)
    dial = Dial(server.port)
    try:
        client_id = unique()
        client = dial.v5(client_id, session_expiry_interval=60)
        client.subscribe(topic)
        client.disconnect()
        publisher = dial.v5()
        codes = [publisher.publish(topic, b"%d" % number, qos) for number in range(QUEUE + 2)]
        assert codes == [0] * QUEUE + [0x97] * 2
        client = dial.v5(client_id, clean_start=False)
        assert [int(client.take().payload) for _ in range(QUEUE)] == list(range(QUEUE))
        client.quiet()
        assert publisher.publish(topic, b"room again", qos) == 0
        assert client.take().payload == b"room again"
    finally:
        dial.close()
        server.stop()
