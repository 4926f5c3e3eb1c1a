"""The clients of the load generator: raw sockets that connect, subscribe, and count messages by the bytes received."""

import select
import socket
import struct
import time
from collections.abc import Sequence

from bench import packets
from bench.workloads import PAYLOAD

HOST = "127.0.0.1"
STALL_S = 10  # silence of this length counts as a loss; the slowest broker here delivers hundreds a second
BUFFER = bytearray(1 << 20)  # all connections receive into it, one after the other; more than a window of messages
VIEW = memoryview(BUFFER)
AFTERWARDS_S = 0.05  # how long we check whether more arrives than was published
FILTERS_PER_PACKET = 100  # in one SUBSCRIBE: well below every broker's packet limit


class LoadError(Exception):
    """The broker lost, repeated or held back messages, or refused a client."""


def connect(
    port: int, client_id: str, level: int = packets.LEVEL_311, is_clean: bool = True, keep_alive_s: int = 0
) -> socket.socket:
    """A connected client. It uses the kernel's time-outs, because those of Python cost a poll for every call."""
    client = socket.create_connection((HOST, port), timeout=STALL_S)
    client.settimeout(None)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        client.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", STALL_S, 0))
    client.sendall(packets.connect(client_id, level, is_clean, keep_alive_s))
    answer = packets.read_packet(client)
    if answer[0] >> 4 != packets.CONNACK or answer[3]:
        raise LoadError(f"the broker refused a connection: {answer.hex(' ')}")
    return client


def subscribe(client: socket.socket, filters: Sequence[str], qos: int = 0, level: int = packets.LEVEL_311) -> None:
    for first in range(0, len(filters), FILTERS_PER_PACKET):
        part = filters[first : first + FILTERS_PER_PACKET]
        client.sendall(packets.subscribe(1, part, qos, level))
        answer = packets.read_packet(client)
        if answer[0] >> 4 != packets.SUBACK or max(answer[-len(part) :]) >= packets.REFUSED:
            raise LoadError(f"the broker refused a subscription to {part[0]}: {answer[:20].hex(' ')}")


class Inflow:
    """Counts the messages that one connection receives, in its element of a list that several connections share.

    All packets that it receives have one size: PUBLISH packets, acknowledged if they have identifiers, or PUBACKs.
    """

    def __init__(self, client: socket.socket, size: int, counts: list[int], id_offset: int | None) -> None:
        self.client = client
        self.size = size
        self.counts = counts
        self.index = len(counts)
        counts.append(0)
        self.bytes = 0
        self.id_offset = id_offset  # of PUBLISH packets that want an acknowledgement
        self.incomplete = b""  # the beginning of a packet

    def receive(self) -> None:
        if self.incomplete:
            BUFFER[: len(self.incomplete)] = self.incomplete
        received = self.client.recv_into(VIEW[len(self.incomplete) :] if self.incomplete else BUFFER)
        if not received:
            raise LoadError("the broker closed a connection")
        self.take(received)

    def take(self, received: int) -> None:
        self.bytes += received
        self.counts[self.index] = self.bytes // self.size
        if self.id_offset is not None:
            self._acknowledge(len(self.incomplete) + received, self.id_offset)

    def _acknowledge(self, filled: int, id_offset: int) -> None:
        complete = filled - filled % self.size
        if complete:
            self.client.sendall(packets.acknowledgements(BUFFER[:complete], self.size, id_offset))
        self.incomplete = bytes(VIEW[complete:filled])


class Handshakes(Inflow):
    """Like Inflow, at QoS 2: every packet is answered by the next one of its handshake, and the last one is counted."""

    def take(self, received: int) -> None:
        filled, at, ended = len(self.incomplete) + received, 0, 0
        answers = bytearray()
        while at < filled:
            kind = BUFFER[at] >> 4
            size, id_at = (self.size, self.id_offset) if kind == packets.PUBLISH else (packets.PUBACK_BYTES, 2)
            if at + size > filled:
                break
            assert id_at is not None
            if kind in packets.NEXT:
                answers += packets.NEXT[kind]
                answers += VIEW[at + id_at : at + id_at + 2]
            ended += kind in packets.LAST
            at += size
        self.incomplete = bytes(VIEW[at:filled])
        self.counts[self.index] += ended
        if answers:
            self.client.sendall(answers)


def read_message(client: socket.socket, qos: int) -> bytes:
    """Reads one message, which must be as it was published, without answering it."""
    try:
        packet = packets.read_packet(client)
    except BlockingIOError:
        raise LoadError(f"no message arrived for {STALL_S} s") from None
    if packet[0] & ~packets.DUPLICATE != 0x30 | qos << 1 or not packet.endswith(PAYLOAD):
        raise LoadError(f"not the message that was published: {packet.hex(' ')}")
    return packet


def first_message(client: socket.socket, qos: int, counts: list[int]) -> Inflow:
    """Reads and answers one message, which is not counted; the messages that follow are."""
    packet = read_message(client, qos)
    if not qos:
        return Inflow(client, len(packet), counts, None)
    offset = packets.packet_id_offset(packet)
    if qos == 1:
        client.sendall(packets.acknowledgements(packet, len(packet), offset))
        return Inflow(client, len(packet), counts, offset)
    client.sendall(packets.NEXT[packets.PUBLISH] + packet[offset : offset + 2])
    finish_handshake(client, packets.PUBREL)
    return Handshakes(client, len(packet), counts, offset)


def finish_handshake(client: socket.socket, expected: int) -> None:
    """Reads the expected packet of a handshake; at QoS 2 it is answered."""
    answer = packets.read_packet(client)
    if answer[0] >> 4 != expected or len(answer) != packets.PUBACK_BYTES:
        raise LoadError(f"not the expected packet of type {expected}: {answer.hex(' ')}")
    if expected in packets.NEXT:
        client.sendall(packets.NEXT[expected] + answer[2:])
    if expected == packets.PUBREC:
        finish_handshake(client, packets.PUBCOMP)


def drain(port: int, client_id: str, messages: int) -> float:
    """Receives the messages that wait in a session at QoS 1; returns the seconds from CONNECT to the last message."""
    start = time.perf_counter()
    counts: list[int] = []
    with connect(port, client_id, is_clean=False) as client:
        try:
            inflow = first_message(client, 1, counts)
            while counts[0] + 1 < messages:
                inflow.receive()
        except BlockingIOError:
            raise LoadError(f"after {sum(counts)} of {messages} messages nothing arrived for {STALL_S} s") from None
        elapsed = time.perf_counter() - start
        if counts[0] + 1 > messages or select.select([client], [], [], AFTERWARDS_S)[0]:
            raise LoadError(f"more than {messages} messages arrived")
        client.sendall(packets.DISCONNECT)
    return elapsed
