"""Hostile bytes from a seeded generator: random ones, and valid packets with something wrong in them."""

import random
from collections.abc import Iterator

import mqtt5

from tests.mqtt import client311
from tests.mqtt.client5 import wanted
from tests.mqtt.raw import PINGREQ

STREAM_BYTES_MAX = 4096  # of one connection
PACKETS_MAX = 30


def connects(name: str) -> list[bytes]:
    """Valid CONNECT packets of both versions."""
    will = client311.Will(name, b"gone", 1)
    will5 = mqtt5.Will(name, payload=b"gone", will_delay_interval=1, user_properties=[("k", "v")])
    return [
        client311.connect(name),
        client311.connect(name, clean=False, will=will, username="user", password=b"secret"),
        mqtt5.ConnectPacket(name, clean_start=True).write(),
        mqtt5.ConnectPacket(name, will=will5, session_expiry_interval=5, receive_max=3, topic_alias_max=5).write(),
    ]


def packets311(name: str) -> list[bytes]:
    return [
        client311.publish(name, b"payload"),
        client311.publish(name, b"payload", 1, 10, retain=True),
        client311.publish(name, b"payload", 2, 11),
        client311.ack(client311.PUBREL, 11),
        client311.subscribe(1, (name, 2), (name + "/#", 1), ("+/" + name, 0)),
        client311.unsubscribe(2, name, name + "/#"),
        client311.ack(client311.PUBACK, 1),
        client311.ack(client311.PUBREC, 1),
        client311.ack(client311.PUBCOMP, 1),
        PINGREQ,
        client311.DISCONNECT,
    ]


def packets5(name: str) -> list[bytes]:
    once, twice = mqtt5.QoS.AT_LEAST_ONCE, mqtt5.QoS.EXACTLY_ONCE
    return [
        mqtt5.PublishPacket(name, b"payload", topic_alias=1, message_expiry_interval=1).write(),
        mqtt5.PublishPacket("", b"payload", topic_alias=1).write(),
        mqtt5.PublishPacket(name, b"payload", qos=once, packet_id=10, user_properties=[("k", "v")] * 3).write(),
        mqtt5.PublishPacket(name, b"payload", qos=twice, packet_id=11, retain=True, content_type="text").write(),
        mqtt5.PublishPacket(name, b"payload", response_topic="r", correlation_data=b"c").write(),
        mqtt5.PubRelPacket(11).write(),
        mqtt5.PubAckPacket(1).write(),
        mqtt5.PubRecPacket(1, reason_code=mqtt5.PubRecReasonCode.UNSPECIFIED_ERROR).write(),
        mqtt5.PubCompPacket(1).write(),
        mqtt5.SubscribePacket(1, [wanted(name), wanted("$share/g/" + name)], subscription_id=7).write(),
        mqtt5.UnsubscribePacket(2, [name, "$share/g/" + name]).write(),
        mqtt5.DisconnectPacket(session_expiry_interval=1, reason_str="why").write(),
        mqtt5.AuthPacket(authentication_method="m", authentication_data=b"d").write(),
        PINGREQ,
    ]


def mutate(chance: random.Random, data: bytes) -> bytes:
    """One thing wrong: a bit, a byte, a piece lost, doubled or put in, the length, or the type."""
    bad, at = bytearray(data), chance.randrange(len(data))
    match chance.randrange(8):
        case 0:
            bad[at] ^= 1 << chance.randrange(8)
        case 1:
            bad[at] = chance.randrange(256)
        case 2:
            del bad[at:]
        case 3:
            del bad[at : at + chance.randrange(1, 5)]
        case 4:
            bad[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 5:
            bad[at:at] = bad[max(0, at - 8) : at]
        case 6:
            bad[1 % len(bad)] = chance.randrange(256)
        case _:
            bad[0] = chance.randrange(256)
    return bytes(bad)


def stream(chance: random.Random, name: str) -> bytes:
    """What one hostile connection sends."""
    if chance.random() < 0.15:
        return chance.randbytes(chance.randrange(1, STREAM_BYTES_MAX))
    which = chance.randrange(4)
    first = connects(name)[which]
    if chance.random() < 0.2:
        first = mutate(chance, first)
    if chance.random() < 0.1:
        return first + chance.randbytes(chance.randrange(1, STREAM_BYTES_MAX))
    valid = packets311(name) if which < 2 else packets5(name)
    parts = chance.choices(valid, k=chance.randrange(1, PACKETS_MAX))
    mutants = [mutate(chance, part) if chance.random() < 0.1 else part for part in parts]
    return (first + b"".join(mutants))[:STREAM_BYTES_MAX]


def streams(seed: int, total_bytes: int) -> Iterator[bytes]:
    """Streams for one connection each, this many bytes in all."""
    chance = random.Random(seed)
    sent = 0
    while sent < total_bytes:
        data = stream(chance, f"fuzz{chance.randrange(20)}")  # few names, so that they meet
        sent += len(data)
        yield data
