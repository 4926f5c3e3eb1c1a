"""The size of a packet on a simulated link is that of the bytes which the codec would write to a real one."""

import mqtt5
import pytest

from brokerbed.broker.core.packet_size import link_bytes
from brokerbed.broker.core.run import TAGGED, Run, notification
from brokerbed.broker.values import Entry, Message, Properties, Published
from brokerbed.clients.session import Packet

IDENTITY = ("overlay-message", f"left.1.{7:016d}")


def published(payload: bytes, qos: int, answers: Entry | None = None, **more: object) -> Published:
    message = Message("t/ü", payload, qos, False, None, **more)  # type: ignore[arg-type]
    message.origin, message.sequence = "left.1", 7
    return Published(message, qos, False, 5 if qos else 0, False, (), answers)


def written(payload: bytes, qos: int, *properties: tuple[str, str], **more: object) -> int:
    packet = mqtt5.PublishPacket(
        "t/ü", payload, qos=mqtt5.QoS(qos), packet_id=5 if qos else None, user_properties=[*properties],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return len(packet.write())


@pytest.mark.parametrize("size", [0, 60, 100, 127, 3000, 16_300, 16_384])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_is_as_long_as_the_codec_makes_it(size: int, qos: int) -> None:
    assert link_bytes(published(bytes(size), qos)) == written(bytes(size), qos, IDENTITY)


def test_message_with_properties_is_as_long_as_the_codec_makes_it() -> None:
    answer, about = Entry("t/#", "low/3"), Properties(1, "text", "answers", b"1", (("a", "b"),))
    assert link_bytes(published(b"x", 1, answer)) == written(
        b"x", 1, IDENTITY, ("overlay-retained", "t/#"), ("overlay-identity", "low/3")
    )
    assert link_bytes(published(b"x", 0, properties=about, expires_at_ns=10**9)) == written(
        b"x", 0, ("a", "b"), IDENTITY, ("overlay-expires", "0000000001000000000"), payload_format_indicator=1, content_type="text", response_topic="answers",
        correlation_data=b"1", message_expiry_interval=3,
    )  # fmt: skip


def test_notification_is_as_long_as_a_run_of_one() -> None:
    run = notification("t/x", b"abc")
    run.origin, run.sequence = "left.1", 7
    real = Run(b"abc", 3, b"t/x", "t/x", 0, 0)
    real.origin, real.sequence = "left.1", 7
    assert link_bytes(run) == len(real.in_form(TAGGED))


@pytest.mark.parametrize(
    ("packet", "size"),
    [
        (mqtt5.PubAckPacket(1), 4),
        (mqtt5.PingReqPacket(), 2),
        (mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t/#")]), 11),  # 2 + id 2 + properties 1 + 2 + 3 + options 1
    ],
)
def test_other_packets_have_the_sizes_of_the_standard(packet: Packet, size: int) -> None:
    assert link_bytes(packet) == size
