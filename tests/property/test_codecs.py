"""Packets survive the codecs, streams survive being cut anywhere, and no bytes raise anything but the named error."""

import struct
from contextlib import suppress
from typing import Any

import mqtt5
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.errors import MqttError
from brokerbed.broker.mqtt import frames, v5, v311
from brokerbed.broker.values import Properties, format_indicator, properties_of
from brokerbed.log.record import Log
from tests.core_client import FOREVER_S, QOS, Client, World

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TOPIC = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20)
FILTER = st.lists(st.sampled_from(["+", "", "$x"]) | TOPIC, min_size=1, max_size=4).map("/".join)
BINARY = st.binary(max_size=40)
ID = st.integers(1, 65_535)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=3)
SECONDS = st.integers(0, 0xFFFF_FFFF)


def publishes(properties: bool) -> st.SearchStrategy[mqtt5.PublishPacket]:
    def build(qos: int, packet_id: int, retain: bool, duplicate: bool, topic: str, payload: bytes, more: Any) -> Any:
        return mqtt5.PublishPacket(
            topic, payload, qos=QOS[qos], retain=retain, duplicate=duplicate and qos > 0,
            packet_id=packet_id if qos else None, **more,
        )  # fmt: skip

    more = st.fixed_dictionaries(
        {},
        optional={
            "payload_format_indicator": st.integers(0, 1),
            "message_expiry_interval": SECONDS,
            "content_type": TEXT,
            "response_topic": TOPIC,
            "correlation_data": BINARY,
            "subscription_ids": st.lists(st.integers(1, 268_435_455), max_size=3),
            "topic_alias": ID,
            "user_properties": PAIRS,
        },
    )
    none: st.SearchStrategy[dict[str, Any]] = st.just({})
    return st.builds(
        build, st.integers(0, 2), ID, st.booleans(), st.booleans(), TOPIC, BINARY, more if properties else none
    )


CONNECTS = st.builds(
    lambda client_id, clean, keep_alive, username, password, will: mqtt5.ConnectPacket(
        client_id, clean_start=clean, keep_alive=keep_alive, username=username,
        password=password if username is not None else None, will=will,
        session_expiry_interval=0 if clean else FOREVER_S,
    ),
    TEXT, st.booleans(), st.integers(0, 65_535), st.none() | TEXT, st.none() | BINARY,
    st.none() | st.builds(
        lambda topic, payload, qos, retain: mqtt5.Will(topic, payload=payload, qos=QOS[qos], retain=retain),
        TOPIC, BINARY, st.integers(0, 2), st.booleans(),
    ),
)  # fmt: skip
SUBSCRIBES = st.builds(
    lambda packet_id, wanted: mqtt5.SubscribePacket(
        packet_id, [mqtt5.TopicFilter(p, max_qos=QOS[q], retain_as_published=False) for p, q in wanted]
    ),
    ID,
    st.lists(st.tuples(FILTER, st.integers(0, 2)), min_size=1, max_size=3),
)
SIMPLE = st.one_of(
    st.builds(mqtt5.PubAckPacket, ID),
    st.builds(mqtt5.PubRecPacket, ID),
    st.builds(mqtt5.PubRelPacket, ID),
    st.builds(mqtt5.PubCompPacket, ID),
    st.builds(mqtt5.UnsubscribePacket, ID, st.lists(FILTER, min_size=1, max_size=3)),
    st.just(mqtt5.PingReqPacket()),
    st.just(mqtt5.DisconnectPacket()),
)
FROM_CLIENTS = st.one_of(publishes(properties=True), CONNECTS, SUBSCRIBES, SIMPLE)
WORDS = st.fixed_dictionaries({"reason_str": st.none() | TEXT, "user_properties": PAIRS})
FROM_SERVERS = st.one_of(
    st.builds(
        lambda name, words: mqtt5.ConnAckPacket(assigned_client_id=name, receive_max=9, **words), TEXT, WORDS
    ),
    st.builds(lambda it, words: mqtt5.SubAckPacket(it, [mqtt5.SubAckReasonCode(0)], **words), ID, WORDS),
    st.builds(lambda it, words: mqtt5.UnsubAckPacket(it, [mqtt5.UnsubAckReasonCode(0)], **words), ID, WORDS),
    st.builds(lambda it, words: mqtt5.PubAckPacket(it, **words), ID, WORDS),
    st.builds(lambda it, words: mqtt5.PubCompPacket(it, **words), ID, WORDS),
    st.builds(lambda words: mqtt5.DisconnectPacket(**words), WORDS),
    st.builds(lambda words: mqtt5.AuthPacket(authentication_method="m", **words), WORDS),
)  # fmt: skip


@given(FROM_CLIENTS)
def test_v5_packets_survive(packet: mqtt5.Packet) -> None:
    assert v5.decode(v5.encode(packet)) == packet


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">H", len(raw)) + raw


def written_311(packet: Any) -> bytes:
    """A client's 3.1.1 packets, straight from the tables of the standard."""
    if isinstance(packet, mqtt5.ConnectPacket):
        will = packet.will
        flags = (packet.username is not None) << 7 | (packet.password is not None) << 6 | packet.clean_start << 1
        body = b""
        if will is not None:
            flags |= 4 | int(will.qos) << 3 | will.retain << 5
            body = text(will.topic) + text(will.payload or b"")
        body = (
            text(packet.client_id)
            + body
            + b"".join(text(part) for part in (packet.username, packet.password) if part is not None)
        )
        first, body = 0x10, text("MQTT") + bytes((4, flags)) + struct.pack(">H", packet.keep_alive) + body
    elif isinstance(packet, mqtt5.SubscribePacket):
        first, body = 0x82, struct.pack(">H", packet.packet_id)
        body += b"".join(text(wanted.pattern) + bytes((int(wanted.max_qos),)) for wanted in packet.topic_filters)
    elif isinstance(packet, mqtt5.UnsubscribePacket):
        first, body = 0xA2, struct.pack(">H", packet.packet_id) + b"".join(map(text, packet.patterns))
    elif isinstance(packet, mqtt5.PingReqPacket | mqtt5.DisconnectPacket):
        return b"\xc0\x00" if isinstance(packet, mqtt5.PingReqPacket) else b"\xe0\x00"
    else:
        return v311.encode(packet)
    return bytes((first,)) + frames.encoded_length(len(body)) + body


@given(st.one_of(publishes(properties=False), CONNECTS, SUBSCRIBES, SIMPLE))
def test_v311_packets_survive(packet: mqtt5.Packet) -> None:
    assert v311.decode(written_311(packet)) == packet


def test_v311_server_packets_by_the_tables_of_the_standard() -> None:
    codes = [mqtt5.SubAckReasonCode(code) for code in (0, 1, 2, 0x87)]
    assert v311.encode(mqtt5.SubAckPacket(258, codes)) == b"\x90\x06\x01\x02\x00\x01\x02\x80"
    assert v311.encode(mqtt5.UnsubAckPacket(258, [])) == b"\xb0\x02\x01\x02"
    assert v311.encode(mqtt5.ConnAckPacket(session_present=True)) == b"\x20\x02\x01\x00"
    refused = mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED)
    assert v311.encode(refused) == b"\x20\x02\x00\x05"
    assert v311.encode(mqtt5.PingRespPacket()) == b"\xd0\x00"
    assert v311.encode(mqtt5.DisconnectPacket()) == b""


@pytest.mark.parametrize("length", [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455])
def test_remaining_length_is_what_mqtt5_writes(length: int) -> None:
    encoded = frames.encoded_length(length)
    assert len(encoded) == 1 + (length > 127) + (length > 16_383) + (length > 2_097_151)
    value = sum((byte & 0x7F) << 7 * position for position, byte in enumerate(encoded))
    assert value == length


@settings(max_examples=500)
@given(st.binary(min_size=1, max_size=60), st.integers(0, 255))
def test_any_bytes_raise_nothing_but_the_named_error(body: bytes, first: int) -> None:
    frame = bytes((first,)) + frames.encoded_length(len(body)) + body
    for codec in (v5, v311):
        with suppress(MqttError):
            codec.decode(frame)


@settings(max_examples=1500)
@given(FROM_CLIENTS | FROM_SERVERS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3))
def test_no_damaged_packet_makes_the_codec_panic(packet: mqtt5.Packet, damages: list[tuple[int, int]]) -> None:
    """In its body, as the length of a frame is right by then."""
    frame = bytearray(packet.write())
    found = frames.bounds(bytes(frame), 0, len(frame))
    assert found is not None
    for at, byte in damages:
        if found[0] + at < len(frame):
            frame[found[0] + at] = byte
    problem = ""
    try:
        v5.decode(bytes(frame))
    except MqttError as error:
        problem = str(error)
    assert "panics" not in problem


@given(publishes(properties=True), st.sampled_from((None, 0, 1)))
def test_the_payload_format_indicator_survives(packet: mqtt5.PublishPacket, payload_format: int | None) -> None:
    indicator = format_indicator(Properties(payload_format))
    given = mqtt5.PublishPacket(
        packet.topic, packet.payload, qos=packet.qos, packet_id=packet.packet_id, payload_format_indicator=indicator,
        content_type=packet.content_type, correlation_data=packet.correlation_data,
        user_properties=packet.user_properties,
    )  # fmt: skip
    decoded = v5.decode(v5.encode(given))
    assert decoded == given
    assert isinstance(decoded, mqtt5.PublishPacket)
    assert properties_of(decoded).payload_format == payload_format


@given(
    st.lists(
        st.one_of(
            publishes(properties=True), SUBSCRIBES, SIMPLE.filter(lambda it: not isinstance(it, mqtt5.DisconnectPacket))
        ),
        max_size=12,
    ),
    st.data(),
)
def test_any_cut_of_a_stream_means_the_same(packets: list[mqtt5.Packet], data: st.DataObject) -> None:
    stream = b"".join(packet.write() for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    outputs = []
    for places in ([], cuts, list(range(len(stream)))):
        log = Log()
        world = World(log)
        watcher, client = Client(world, "w"), Client(world, "c")
        watcher.connect()
        watcher.subscribe("#")
        client.connect()
        for start, stop in zip([0, *places], [*places, len(stream)], strict=True):
            if not client.is_closed:
                client.send_bytes(stream[start:stop])
        outputs.append((client.inbox, watcher.inbox, client.is_closed, world.broker.sequence))
    assert outputs[0] == outputs[1] == outputs[2]


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=80), max_size=6), st.booleans())
def test_random_bytes_harm_nobody_else(chunks: list[bytes], is_connected: bool) -> None:
    world = World()
    clean, hostile = Client(world, "clean"), Client(world, "hostile")
    clean.connect()
    clean.subscribe("t")
    if is_connected:
        hostile.connect()
    else:
        hostile.open()
    for chunk in chunks:
        if not hostile.is_closed:
            hostile.send_bytes(chunk)
    clean.read_all()
    clean.publish("t", b"still here", qos=1)
    assert b"still here" in clean.payloads()
