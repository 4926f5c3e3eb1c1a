"""The load generator of the benchmarks: ready packets, and counting and acknowledging by bytes."""

import socket
from contextlib import ExitStack

import pytest

from bench import packets
from bench.brokers import RELAY, running
from bench.clients import Handshakes, Inflow, LoadError
from bench.loop import Loop
from bench.workloads import PAYLOAD, Workload


def test_the_topics_of_a_stream_take_turns_and_packet_ids_are_not_repeated() -> None:
    workload = Workload(topics=3, qos=1, window=600)
    stream = workload.stream(group=7)
    size = len(stream) // 1200  # two windows, which is a multiple of three topics
    ready = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [packet[4:19] for packet in ready[:4]] == [f"bench/007/0000{i}".encode() for i in (0, 1, 2, 0)]
    assert [int.from_bytes(packet[19:21], "big") for packet in ready] == list(range(1, 1201))
    assert all(packet[0] == 0x32 and packet.endswith(PAYLOAD) for packet in ready)


def test_members_of_a_group_share_a_subscription_and_exact_filters_name_every_topic() -> None:
    assert Workload(subscribers=2, is_shared=True).filters(0) == ["$share/bench/bench/000/00000"]
    assert Workload(topics=2).filters(12) == ["bench/012/+"]
    assert Workload(topics=2, has_exact_filters=True).filters(1) == ["bench/001/00000", "bench/001/00001"]


def test_a_retained_message_and_a_keep_alive_are_encoded() -> None:
    assert packets.publish("a", b"x", is_retained=True) == bytes.fromhex("31 04 00 01 61 78")
    assert packets.connect("c", keep_alive_s=2) == bytes.fromhex("10 0d 00 04 4d 51 54 54 04 02 00 02 00 01 63")


def test_messages_that_arrive_in_pieces_are_counted_and_acknowledged_once() -> None:
    near, far = socket.socketpair()
    with near, far:
        counts: list[int] = []
        sent = b"".join(packets.publish("t", b"abc", 1, packet_id) for packet_id in (1, 258, 3))
        size = len(sent) // 3
        inflow = Inflow(near, size, counts, packets.packet_id_offset(sent[:size]))
        for piece in (sent[: size + 4], sent[size + 4 : size + 6], sent[size + 6 :]):
            far.sendall(piece)
            inflow.receive()
        assert counts == [3]
        assert far.recv(100) == bytes.fromhex("40 02 00 01  40 02 01 02  40 02 00 03")


def test_a_handshake_counts_when_it_has_ended() -> None:
    near, far = socket.socketpair()
    with near, far:
        counts: list[int] = []
        message = packets.publish("t", b"abc", 2, 9)
        inflow = Handshakes(near, len(message), counts, packets.packet_id_offset(message))
        far.sendall(message)
        inflow.receive()
        assert (counts, far.recv(100)) == ([0], bytes.fromhex("50 02 00 09"))
        far.sendall(bytes.fromhex("62 02 00 09"))
        inflow.receive()
        assert (counts, far.recv(100)) == ([1], bytes.fromhex("70 02 00 09"))


@pytest.mark.parametrize(
    "workload", [Workload(window=7, batch=3), Workload(publishers=3, window=3, qos=1), Workload(subscribers=3)]
)
def test_every_message_is_delivered_and_no_more_than_the_limit_is_sent(workload: Workload) -> None:
    with running(RELAY) as relay, ExitStack() as stack:
        loop = Loop(workload, relay.port, relay.port, stack)
        loop.run(60, messages_max=2500)
        assert loop.sent == 2500
        assert loop.groups[0].delivered == [2500] * workload.subscribers
        assert sum(loop.groups[0].acknowledged) == (2500 if workload.qos else 0)


def test_a_message_at_a_given_rate_has_one_latency() -> None:
    with running(RELAY) as relay, ExitStack() as stack:
        loop = Loop(Workload(rate_per_s=1000), relay.port, relay.port, stack)
        elapsed, samples = loop.run_at_rate(0.1)
        assert len(samples) == loop.sent == 100
        assert 0 < min(samples) <= max(samples) < (elapsed + 60) * 1e9


def test_a_message_that_nobody_published_is_an_error() -> None:
    with running(RELAY) as relay, ExitStack() as stack:
        loop = Loop(Workload(window=5), relay.port, relay.port, stack)
        loop.run(60, messages_max=20)
        loop.groups[0].sent -= 1
        with pytest.raises(LoadError, match="more than was published"):
            loop.run(60, messages_max=0)
