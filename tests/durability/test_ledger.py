"""The judge of the kill tests finds every kind of broken promise, and nothing else."""

import pytest

from tests.durability import packets
from tests.durability.ledger import Kind, Ledger, Reader, Stream, matches, ranges


def ledger(published_qos: int = 1, qos: int = 1, place: str = "a", links_repeat: bool = True) -> Ledger:
    """One publisher at broker a and one subscriber; five messages are published and acknowledged."""
    out = Ledger([Stream("p", "t", published_qos, "a", 0)], [Reader("s", ["t"], qos, place)], links_repeat)
    for _ in range(5):
        number, _ = out.published(out.streams[0])
        out.acknowledged(out.streams[0], number)
    return out


def receive(into: Ledger, *numbers: int, marked: bool = False) -> None:
    stream, reader = into.streams[0], into.readers[0]
    for number in numbers:
        into.received(reader, "t", stream.payload(number), min(stream.qos, reader.qos), marked)


def found(of: Ledger) -> list[tuple[Kind, int]]:
    return [(it.kind, it.count) for it in of.violations()]


def test_complete_and_in_order_is_right() -> None:
    it = ledger()
    assert not it.is_settled()
    receive(it, 0, 1, 2, 3, 4)
    assert it.is_settled()
    assert found(it) == []


def test_message_that_was_acknowledged_and_never_came_is_lost() -> None:
    it = ledger()
    receive(it, 0, 1, 4)
    assert found(it) == [(Kind.LOST, 2)]
    assert it.violations()[0].what.endswith("2-3 of 5")


def test_message_that_was_not_acknowledged_may_be_missing() -> None:
    it = ledger()
    it.published(it.streams[0])
    receive(it, 0, 1, 2, 3, 4)
    assert found(it) == []


def test_message_before_the_promise_may_be_missing() -> None:
    it = ledger()
    receive(it, 3)
    it.promise()
    number, _ = it.published(it.streams[0])
    it.acknowledged(it.streams[0], number)
    assert not it.is_settled()
    receive(it, number)
    assert it.is_settled()
    assert found(it) == []


def test_first_receipts_out_of_order() -> None:
    it = ledger()
    receive(it, 0, 2, 1, 3, 4)
    assert found(it) == [(Kind.DISORDER, 1)]


def test_second_receipt_out_of_order_is_right_at_qos1_with_dup() -> None:
    it = ledger()
    receive(it, 0, 1, 2)
    receive(it, 1, 2, marked=True)
    receive(it, 3, 4)
    assert found(it) == []
    assert it.duplicates().marked == 2


@pytest.mark.parametrize("marked", [False, True])
def test_second_receipt_is_wrong_at_qos2(marked: bool) -> None:
    it = ledger(published_qos=2, qos=2)
    receive(it, 0, 1, 2, 3, 4)
    receive(it, 3, marked=marked)
    assert found(it) == [(Kind.TWICE, 1)]


def test_second_receipt_without_dup_needs_a_publisher_that_sent_again() -> None:
    it = ledger()
    receive(it, 0, 1, 1, 2, 2, 3, 4)
    it.streams[0].resent[1] += 1
    assert found(it) == [(Kind.UNMARKED, 1)]
    assert it.duplicates().publisher == 1


def test_publisher_that_sent_again_at_qos2_explains_nothing() -> None:
    it = ledger(published_qos=2)
    receive(it, 0, 1, 1, 2, 3, 4)
    it.streams[0].resent[1] += 1
    assert found(it) == [(Kind.UNMARKED, 1)]


@pytest.mark.parametrize(("links_repeat", "expected"), [(True, []), (False, [(Kind.UNMARKED, 1)])])
def test_second_receipt_over_a_link(links_repeat: bool, expected: list[tuple[Kind, int]]) -> None:
    it = ledger(place="b", links_repeat=links_repeat)
    receive(it, 0, 1, 1, 2, 3, 4)
    assert found(it) == expected
    assert it.duplicates().links == 1


def test_changed_payload_topic_or_qos() -> None:
    it = ledger()
    reader, payload = it.readers[0], it.streams[0].payload(0)
    receive(it, 0, 1, 2, 3, 4)
    it.received(reader, "t", payload + b"x", 1, False)
    it.received(reader, "u", payload, 1, False)
    it.received(reader, "t", payload, 2, False)
    it.received(reader, "t", it.streams[0].payload(5), 1, False)
    it.received(reader, "t", b"noise", 1, False)
    assert found(it) == [(Kind.CONTENT, 5)]


def test_message_at_qos0_may_be_missing_but_not_come_twice() -> None:
    it = ledger(published_qos=0)
    assert it.is_settled()
    receive(it, 0, 2)
    assert found(it) == []
    receive(it, 2)
    assert found(it) == [(Kind.TWICE, 1)]


def test_subscriber_at_qos0_may_get_twice_what_the_publisher_sent_twice_at_qos1() -> None:
    it = ledger(qos=0)
    it.streams[0].resent[1] += 1
    receive(it, 1, 1)
    assert found(it) == []
    receive(it, 3, 3)
    assert found(it) == [(Kind.UNMARKED, 1)]


def group_ledger(qos: int) -> Ledger:
    """Two members of a group; five messages are published and acknowledged."""
    members = [Reader(name, ["t"], qos, "a", group="g") for name in ("s", "u")]
    out = Ledger([Stream("p", "t", qos, "a", 0)], members)
    for _ in range(5):
        out.acknowledged(out.streams[0], out.published(out.streams[0])[0])
    return out


def receive_as(into: Ledger, member: int, *numbers: int) -> None:
    stream = into.streams[0]
    for number in numbers:
        into.received(into.readers[member], "t", stream.payload(number), stream.qos, False)


def test_members_of_a_group_get_every_message_together() -> None:
    it = group_ledger(qos=2)
    receive_as(it, 0, 0, 3)
    assert not it.is_settled()
    assert found(it) == [(Kind.LOST, 3)]
    receive_as(it, 1, 1, 2, 4)
    assert it.is_settled()
    assert found(it) == []


def test_message_for_two_members_of_a_group_is_wrong_at_qos2() -> None:
    it = group_ledger(qos=2)
    receive_as(it, 0, 0, 1, 2)
    receive_as(it, 1, 2, 3, 4)
    assert found(it) == [(Kind.TWICE, 1)]


def test_member_of_a_group_gets_its_share_in_order_unless_the_publisher_sent_again() -> None:
    it = group_ledger(qos=1)
    it.streams[0].resent[0] += 1
    receive_as(it, 0, 0, 1, 2)
    receive_as(it, 1, 4, 3, 0)
    assert found(it) == [(Kind.DISORDER, 1)]


def visited_ledger() -> Ledger:
    """A visitor; five retained messages are published and acknowledged."""
    out = Ledger([Stream("p", "t", 1, "a", 0, is_retained=True)], [Reader("v", ["t"], 1, "a", is_visitor=True)])
    for _ in range(5):
        out.acknowledged(out.streams[0], out.published(out.streams[0])[0])
    return out


def test_visitor_gets_all_between_the_first_and_the_last_of_a_session() -> None:
    it = visited_ledger()
    receive(it, 1, 2)
    it.session_began(it.readers[0])
    receive(it, 4)
    assert found(it) == []
    assert it.sessions_ended == 1


def test_session_that_began_between_gets_what_is_sent_again_after_later_messages() -> None:
    it = visited_ledger()
    it.streams[0].resent.update([1, 2, 3])
    receive(it, 3, 1, 2, 3, 4)
    assert found(it) == []
    receive(it, 0)  # which the publisher sent once
    assert found(it) == [(Kind.DISORDER, 1)]


def test_message_that_a_session_was_to_get_does_not_come_late_because_it_was_sent_again() -> None:
    it = visited_ledger()
    it.streams[0].resent.update([2])
    receive(it, 1, 3, 2)
    assert found(it) == [(Kind.DISORDER, 1)]


def test_gap_in_a_session_of_a_visitor_is_found_also_when_the_session_has_ended() -> None:
    it = visited_ledger()
    receive(it, 0, 3)
    it.session_began(it.readers[0])
    assert found(it) == [(Kind.LOST, 2)]


def test_retained_message_is_the_last_that_was_acknowledged_before_the_subscription() -> None:
    it = visited_ledger()
    reader, stream = it.readers[0], it.streams[0]
    it.subscribing(reader)
    it.received(reader, "t", stream.payload(4), 1, False, is_retained=True)
    assert it.missing_retained(reader) == []
    assert found(it) == []
    it.received(reader, "t", stream.payload(3), 1, False, is_retained=True)
    assert it.missing_retained(reader) == ["t: 3, not 4"]
    assert found(it) == [(Kind.STALE, 1)]


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/#", "a/b/c", True),
        ("a/#", "b/b", False),
        ("a/+/c", "a/b/c", True),
        ("a/+", "a/b/c", False),
        ("a", "a", True),
    ],
)
def test_filters_match(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


def test_numbers_are_shown_as_ranges() -> None:
    assert ranges([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert ranges(range(0, 20, 2)) == "0, 2, 4, 6, 8, ..."


@pytest.mark.parametrize("size", [0, 100, 127, 128, 16_383, 16_384, 70_000])
@pytest.mark.parametrize("level", [packets.LEVEL_311, packets.LEVEL_5])
def test_stream_is_cut_wherever_it_breaks(size: int, level: int) -> None:
    sent = packets.publish("t", bytes(size), 1, 7, level) + packets.acknowledgement(packets.PUBACK, 9)
    for split in (0, 1, 2, 3, 4, 5, len(sent) - 5, len(sent) - 4, len(sent) - 1, len(sent)):
        first, rest = packets.cut(sent[:split])
        second, rest = packets.cut(rest + sent[split:])
        (head, body), (_, ack) = first + second
        assert rest == b""
        assert packets.published(head, body, level) == ("t", 7, bytes(size))
        assert packets.acknowledged(ack) == (9, 0)


def test_receive_maximum_is_found_among_properties() -> None:
    properties = b"\x22\x00\x0a" + b"\x26\x00\x01a\x00\x02bc" + b"\x12\x00\x01x" + b"\x21\x00\x14" + b"\x13\x00\x3c"
    assert packets.receive_maximum(b"\x00\x00" + bytes([len(properties)]) + properties) == 20
    assert packets.receive_maximum(b"\x00\x00\x00") == 65_535
