"""The light client: what the broker's answer to CONNECT means for it."""

from collections.abc import Callable

import mqtt5
import pytest

from brokerbed.broker.values import Published
from brokerbed.clients.session import Client, Packet

ACCEPTED = mqtt5.ConnAckPacket(session_present=False, reason_code=mqtt5.ConnAckReasonCode.SUCCESS)
KEPT = mqtt5.ConnAckPacket(session_present=True, reason_code=mqtt5.ConnAckReasonCode.SUCCESS)
QUOTA_EXCEEDED = mqtt5.ConnAckPacket(session_present=False, reason_code=mqtt5.ConnAckReasonCode.QUOTA_EXCEEDED)


class FakeLine:
    """A connection that keeps what is sent over it."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.sent: list[Packet] = []
        self.is_closed = False

    @property
    def out(self) -> "FakeLine":
        return self

    def send(self, packet: Packet) -> None:
        self.sent.append(packet)

    def close(self) -> None:
        self.is_closed = True


class World:
    """One client, its connections in order, and the attempts that it has put off."""

    def __init__(self) -> None:
        self.lines: list[FakeLine] = []
        self.put_off: list[tuple[Callable[[int], None], int]] = []
        self.changes: list[bool] = []
        self.client = Client(self._dial, "c", False, lambda dial, number: self.put_off.append((dial, number)))
        self.client.is_accepted_changed = self.changes.append
        self.client.connect()

    def _dial(self, _: Client) -> FakeLine:
        self.lines.append(FakeLine())
        return self.lines[-1]

    def answer(self, packet: Packet) -> None:
        self.client.arrived(self.lines[-1], packet)

    def try_again(self) -> None:
        dial, number = self.put_off.pop()
        dial(number)


def test_refused_client_is_not_connected_and_tries_again_later() -> None:
    world = World()
    world.answer(QUOTA_EXCEEDED)
    assert not world.client.is_connected
    assert world.lines[0].is_closed
    assert world.changes == []
    assert len(world.lines) == 1  # not at once
    world.try_again()
    world.answer(ACCEPTED)
    assert world.client.is_connected
    assert world.changes == [True]


def test_refused_client_keeps_what_it_has_to_publish() -> None:
    world = World()
    world.client.publish("t", b"1", 1)
    world.answer(QUOTA_EXCEEDED)
    assert [type(it) for it in world.lines[0].sent] == [mqtt5.ConnectPacket]
    world.try_again()
    world.answer(ACCEPTED)
    assert len(world.lines[1].sent) == 2
    assert world.client.under_way == 1


@pytest.mark.parametrize("is_wanted", [True, False], ids=["broken", "switched off"])
def test_client_says_when_it_is_accepted_and_when_no_longer(is_wanted: bool) -> None:
    world = World()
    assert world.changes == []  # CONNECT alone is not enough
    world.answer(ACCEPTED)
    assert world.changes == [True]
    if is_wanted:
        world.client.lost(world.lines[0])
    else:
        world.client.disconnect()
    assert world.changes == [True, False]


def test_client_that_moves_connects_to_the_other_broker_and_keeps_its_qos_2_state() -> None:
    world = World()
    moved: list[tuple[str, str]] = []
    world.client = Client(
        world._dial, "c", False, lambda _, __: None, "b0", lambda client, before: moved.append((before, client.broker))
    )
    world.client.connect()
    world.answer(ACCEPTED)
    world.client.publish("t", b"1", 2)
    world.client.disconnect()
    world.client.move_to("b1")
    assert (world.client.broker, moved) == ("b1", [("b0", "b1")])
    world.client.connect()
    world.answer(KEPT)
    again = world.lines[-1].sent[-1]
    assert isinstance(again, Published)
    assert (again.message.payload, again.is_duplicate, again.packet_id) == (b"1", True, 1)


def test_new_session_gets_qos_1_messages_anew_and_no_qos_2_message_that_an_earlier_one_may_have_taken() -> None:
    world = World()
    world.answer(ACCEPTED)
    for qos, payload in ((1, b"one"), (2, b"two"), (2, b"released")):
        world.client.publish("t", payload, qos)
    world.answer(mqtt5.PubRecPacket(3))
    world.client.lost(world.lines[0])
    world.try_again()
    world.answer(ACCEPTED)
    _, *sent = world.lines[1].sent
    assert [(it.message.payload, it.is_duplicate) for it in sent if isinstance(it, Published)] == [(b"one", False)]
    assert len(sent) == 1
    assert world.client.under_way == 1
