"""Connections of one test to the server under test, opened by a word and closed when the test ends."""

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

import mqtt5

from tests.mqtt.client5 import Client5
from tests.mqtt.client311 import Client311, Connack, connect
from tests.mqtt.raw import RawConnection

_numbers = itertools.count(1)


def unique(prefix: str = "c") -> str:
    """A name nobody else uses: letters and digits, at most 23 bytes, as every server must allow (MQTT-3.1.3-5)."""
    return f"{prefix}{os.getpid():x}n{next(_numbers)}"


@dataclass
class Dial:
    port: int
    opened: list[RawConnection] = field(default_factory=list)

    def raw(self) -> RawConnection:
        """A TCP connection, nothing sent."""
        self.opened.append(connection := RawConnection(self.port))
        return connection

    def open311(self, receive_buffer_bytes: int | None = None) -> Client311:
        """A connection that reads MQTT 3.1.1; nothing sent."""
        self.opened.append(client := Client311(self.port, receive_buffer_bytes))
        return client

    def open5(self) -> Client5:
        """A connection that reads MQTT 5; nothing sent."""
        self.opened.append(client := Client5(self.port))
        return client

    def v311(self, client_id: str | None = None, **options: Any) -> Client311:
        """A connected MQTT 3.1.1 client."""
        client = self.open311()
        client.send(connect(unique() if client_id is None else client_id, **options))
        client.connack = client.expect(Connack)
        assert client.connack.code == 0
        return client

    def v5(self, client_id: str | None = None, **options: Any) -> Client5:
        """A connected MQTT 5 client; clean start and keep alive 60 s unless told otherwise."""
        client = self.open5()
        options = {"clean_start": True, "keep_alive": 60} | options
        client.send(mqtt5.ConnectPacket(unique() if client_id is None else client_id, **options).write())
        client.connack = client.expect(mqtt5.ConnAckPacket)
        assert client.connack.reason_code == 0
        return client

    def close(self) -> None:
        for connection in self.opened:
            connection.close()
