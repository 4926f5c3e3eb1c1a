"""Announcements from a parent to its child, as they travel."""

import mqtt5
import pytest

from brokerbed.broker.core.announcements import Change, packet_to_child, read_from_parent
from brokerbed.broker.core.link import ENTRY_TOPIC
from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.values import Entry
from tests.core_network import Network


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe", "resync"])
@pytest.mark.parametrize("entry", [Entry("a/+/ü"), Entry("#", "n1.2.3")])
def test_an_announcement_is_read_as_it_was_written(kind: str, entry: Entry) -> None:
    change = Change(entry, kind != "unsubscribe", kind, False)
    packet = packet_to_child(7, change)
    assert isinstance(packet, mqtt5.PublishPacket)
    assert (packet.topic, int(packet.qos), packet.packet_id) == ("$overlay/entry", 1, 7)
    assert read_from_parent(packet.payload) == change


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xff", b"5", b"[]", b'[true, false, "a"]', b'["yes", false, "a", ""]', b'[true, false, 1, ""]',
        b'[true, false, "a", null]', b'[true, false, "a/#/b", ""]', b'[true, false, "", ""]', b"[" * 100_000,
    ],
    ids=range(11),
)  # fmt: skip
def test_anything_else_ends_the_link_and_nothing_more(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_from_parent(payload)
    network = Network({"root": None, "leaf": "root"}, routing="peer")
    parent = network.nodes["leaf"].broker.overlay.parent
    assert parent is not None
    assert parent.connection is not None
    packet = mqtt5.PublishPacket(ENTRY_TOPIC, payload, qos=mqtt5.QoS(1), packet_id=1)
    network.nodes["leaf"].broker.received_packet(parent.connection, packet, network.now_ns)
    assert parent.connection.is_closing
    assert network.entries("leaf") == {}
