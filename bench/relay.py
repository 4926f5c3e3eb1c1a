"""The least that a broker could do: pass every chunk of bytes to every subscriber, without parsing it.

This is not an MQTT broker. It shows the highest rate of the load generator, the sockets and this machine: if a broker
is much slower, the broker itself is the limit. A client that does not subscribe is a publisher; the length and QoS of
its first packet, which arrives alone, are assumed for all its packets.
"""

import argparse
import select
import socket
import time
from dataclasses import dataclass

from bench import packets
from bench.clients import BUFFER, HOST, VIEW

CONNECTIONS_MAX = 1100  # more than any workload has
LIFE_S_MAX = 300  # after this time the process ends by itself
CONNECT_BYTES_MAX = 1000  # far more than the generator's CONNECT


@dataclass
class Client:
    socket: socket.socket
    level: int
    subscribes: bool = False
    size: int = 0
    qos: int = 0
    incomplete: bytes = b""  # a packet that is not yet acknowledged


class Relay:
    def __init__(self, port: int) -> None:
        self.server = socket.create_server((HOST, port))
        self.poll = select.epoll()
        self.poll.register(self.server, select.EPOLLIN)
        self.clients: dict[int, Client] = {}

    def run(self) -> None:
        end = time.monotonic() + LIFE_S_MAX
        while (left := end - time.monotonic()) > 0:
            for descriptor, _ in self.poll.poll(left):
                if descriptor == self.server.fileno():
                    self._accept()
                else:
                    self._handle(descriptor)

    def _accept(self) -> None:
        client, _ = self.server.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        level = client.recv(CONNECT_BYTES_MAX)[8:9]
        if not level or len(self.clients) >= CONNECTIONS_MAX:
            client.close()
            return
        client.sendall(b"\x20\x03\x00\x00\x00" if level[0] == packets.LEVEL_5 else b"\x20\x02\x00\x00")
        self.clients[client.fileno()] = Client(client, level[0])
        self.poll.register(client, select.EPOLLIN)

    def _handle(self, descriptor: int) -> None:
        client = self.clients[descriptor]
        try:
            received = client.socket.recv_into(BUFFER)
        except ConnectionError:
            received = 0
        if not received:
            self.clients.pop(descriptor).socket.close()
        elif client.size:
            self._forward(client, received)
        elif not client.subscribes:
            self._first(client, received)

    def _first(self, client: Client, received: int) -> None:
        """Handles a SUBSCRIBE, or the first PUBLISH."""
        if BUFFER[0] >> 4 == packets.PUBLISH:
            client.size, client.qos = received, BUFFER[0] >> 1 & 3
            self._forward(client, received)
        else:
            client.subscribes = True
            granted = BUFFER[received - 1 : received]
            body = BUFFER[2:4] + (b"\x00" if client.level == packets.LEVEL_5 else b"") + granted
            client.socket.sendall(bytes((packets.SUBACK << 4, len(body))) + body)

    def _forward(self, client: Client, received: int) -> None:
        for other in self.clients.values():
            if other.subscribes:
                other.socket.sendall(VIEW[:received])
        if client.qos:
            data = client.incomplete + BUFFER[:received]
            complete = len(data) - len(data) % client.size
            offset = packets.packet_id_offset(data)
            client.socket.sendall(packets.acknowledgements(data[:complete], client.size, offset))
            client.incomplete = data[complete:]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description="Forward bytes from all to all.")
    parser.add_argument("--port", type=int, required=True)
    Relay(parser.parse_args().port).run()


if __name__ == "__main__":
    main()
