"""Packets that are too large, malformed or not for a broker: who is refused, how, and who is left in peace."""

import mqtt5
import pytest

from brokerbed.broker.errors import MqttError
from brokerbed.broker.mqtt import v5
from tests.core_client import Client, World
from tests.core_network import Network

CONNECT_5 = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c"
MEBIBYTE = 2**20


def opened(world: World, client_id: str = "") -> Client:
    client = Client(world, client_id)
    client.open()
    return client


def announced(first: int, size: int) -> bytes:
    """How a packet of that many bytes after its header begins."""
    return bytes((first, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21))


# -- unfinished packets -----------------------------------------------------------------------------------------------


def test_a_connect_that_says_it_is_huge_is_refused_at_once() -> None:
    world = World()
    client = opened(world)
    client.send_bytes(announced(0x10, 200 * MEBIBYTE))
    assert client.is_closed
    assert world.broker.partial_bytes == 0


def test_the_largest_connect_with_a_will_is_taken() -> None:
    world = World()
    client = opened(world, "c")
    most, texts = b"x" * 65_535, "x" * 65_535
    will = mqtt5.Will(
        "/" * 200 + "t" * 65_335, payload=most, content_type=texts, response_topic=texts, correlation_data=most
    )
    connect = mqtt5.ConnectPacket("c", will=will, username=texts, password=most).write()
    assert len(connect) > 450_000
    for at in range(0, len(connect), 50_000):
        client.send_bytes(connect[at : at + 50_000])
    answer = client.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert int(answer.reason_code) == 0


def test_a_large_publish_right_behind_connect_is_taken() -> None:
    world = World()
    client = opened(world, "c")
    client.send_bytes(CONNECT_5 + mqtt5.PublishPacket("t", bytes(2 * MEBIBYTE), qos=mqtt5.QoS(1), packet_id=1).write())
    assert [type(it) for it in client.read_all()] == [mqtt5.ConnAckPacket, mqtt5.PubAckPacket]


def test_when_memory_for_unfinished_packets_runs_out_the_largest_goes() -> None:
    world = World(partial_bytes_max=MEBIBYTE)
    greedy, modest, newcomer = (Client(world, name) for name in ("greedy", "modest", "newcomer"))
    for client in (greedy, modest):
        client.connect()
    greedy.send_bytes(announced(0x30, 100 * MEBIBYTE) + bytes(MEBIBYTE - 1000))
    modest.send_bytes(announced(0x30, 100 * MEBIBYTE) + bytes(500))
    newcomer.open()
    newcomer.send_bytes(CONNECT_5[:-1])
    modest.send_bytes(bytes(1000))
    assert not newcomer.is_closed
    assert not modest.is_closed
    assert greedy.is_closed
    (farewell,) = greedy.read_all()
    assert isinstance(farewell, mqtt5.DisconnectPacket)
    assert int(farewell.reason_code) == 0x97
    assert world.broker.partial_bytes < 3000
    newcomer.send_bytes(CONNECT_5[-1:])
    assert isinstance(newcomer.read(), mqtt5.ConnAckPacket)


# -- messages at QoS 2 that are open ----------------------------------------------------------------------------------


def test_a_311_client_may_have_all_its_packet_ids_open() -> None:
    """It cannot be told of a maximum."""
    world = World()
    client = opened(world)
    client.send_bytes(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c")
    client.send_bytes(b"".join(b"\x34\x05\x00\x01t" + packet_id.to_bytes(2, "big") for packet_id in range(1, 65_536)))
    assert not client.is_closed
    assert client.inbox.count(b"\x50\x02") >= 65_535
    assert world.broker.counters.messages_received == 65_535


def test_a_version_5_client_is_held_to_the_maximum_it_was_told() -> None:
    world = World(receive_maximum=5)
    client = Client(world, "c")
    assert client.connect().receive_max == 5
    for number in range(5):
        client.publish("t", b"%d" % number, qos=2)
    assert not client.is_closed
    client.publish("t", b"one too many", qos=2)
    assert client.is_closed


# -- malformed CONNECT ------------------------------------------------------------------------------------------------

MALFORMED_CONNECTS = {
    "reserved_flag": (b"\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x01c", 0x81),
    "client_id_not_utf8": (b"\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01\xff", 0x81),
    "will_qos_without_will": (b"\x00\x04MQTT\x05\x0a\x00\x00\x00\x00\x01c", 0x81),
    "ends_too_early": (b"\x00\x04MQTT\x05\x02\x00", 0x81),
    "receive_maximum_0": (b"\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x01c", 0x82),
    "session_expiry_twice": (b"\x00\x04MQTT\x05\x02\x00\x00\x0a" + b"\x11\x00\x00\x00\x01" * 2 + b"\x00\x01c", 0x82),
    "authentication_data_alone": (b"\x00\x04MQTT\x05\x02\x00\x00\x04\x16\x00\x01a\x00\x01c", 0x82),
    "will_topic_with_wildcard": (b"\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x01c\x00\x00\x01#\x00\x00", 0x81),
}


@pytest.mark.parametrize("name", MALFORMED_CONNECTS)
def test_a_malformed_connect_of_version_5_is_told_why_mqtt_3_1_4_2(name: str) -> None:
    body, code = MALFORMED_CONNECTS[name]
    client = opened(World())
    client.send_bytes(b"\x10" + bytes((len(body),)) + body)
    assert client.is_closed
    (answer,) = client.read_all()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert int(answer.reason_code) == code
    assert not answer.session_present


@pytest.mark.parametrize(
    "body", [b"\x00\x04MQTT\x04\x03\x00\x00\x00\x01c", b"\x00\x04MQTT\x04\x02\x00\x00\x00\x01\xff"]
)
def test_a_malformed_connect_of_311_is_not_answered_mqtt_3_1_4_1(body: bytes) -> None:
    client = opened(World())
    client.send_bytes(b"\x10" + bytes((len(body),)) + body)
    assert client.is_closed
    assert client.inbox == b""


# -- packets that are not for a server --------------------------------------------------------------------------------

NOT_UTF8 = b"\x26\x00\x01\xf9\x00\x01a"  # a user property
FOR_CLIENTS_ONLY = {
    "connack": b"\x20\x0a\x00\x00\x07" + NOT_UTF8,
    "suback": b"\x90\x0b\x00\x01\x07" + NOT_UTF8 + b"\x00",
    "unsuback": b"\xb0\x0b\x00\x01\x07" + NOT_UTF8 + b"\x00",
    "pingresp": b"\xd0\x00",
    "auth": b"\xf0\x09\x18\x07" + NOT_UTF8,
}


@pytest.mark.parametrize("name", FOR_CLIENTS_ONLY)
def test_packets_that_are_not_for_a_server_are_not_even_decoded(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    client = Client(World(), "c")
    client.connect()
    client.send_bytes(FOR_CLIENTS_ONLY[name])
    (farewell,) = client.read_all()
    assert isinstance(farewell, mqtt5.DisconnectPacket)
    assert int(farewell.reason_code) == 0x82
    assert client.is_closed
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["connack", "suback", "unsuback", "auth"])
def test_text_that_is_not_utf8_is_found_before_the_codec_panics(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MqttError, match="UTF-8"):
        v5.decode(FOR_CLIENTS_ONLY[name])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["suback", "unsuback"])
def test_a_parent_that_sends_what_is_not_utf8_is_left(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    network = Network({"root": None, "leaf": "root"})
    up, _ = network.links["leaf"]
    leaf = network.nodes["leaf"].broker
    leaf.received(up, FOR_CLIENTS_ONLY[name], network.now_ns)
    assert up.is_closing
    assert leaf.counters.protocol_errors == 1
    assert capfd.readouterr().err == ""


def test_a_first_packet_from_a_parent_that_is_not_utf8_ends_the_link(capfd: pytest.CaptureFixture[str]) -> None:
    world = World()
    up = world.broker.opened(world.now_ns, peer="root")
    world.broker.overlay.dialled(up)
    world.broker.received(up, FOR_CLIENTS_ONLY["connack"], world.now_ns)
    assert up.is_closing
    assert capfd.readouterr().err == ""


def test_a_link_cannot_bring_an_origin_of_any_length() -> None:
    network = Network({"root": None, "leaf": "root"})
    root, (_, down) = network.nodes["root"].broker, network.links["leaf"]
    tag = ("overlay-message", f"{'b' * 60_000}.1.0000000000000001")
    packet = mqtt5.PublishPacket("t", b"x", content_type="other", user_properties=[tag])
    root.received(down, packet.write(), network.now_ns)
    assert down.is_closing
