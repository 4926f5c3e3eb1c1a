"""Clients that keep their sessions, on a tree of broker cores joined in memory."""

from typing import Any

import mqtt5

from tests.core_client import FOREVER_S, Client
from tests.core_network import Network

LINE = {"a": None, "b": "a", "c": "b"}
SEVEN = {"r": None, "x": "r", "y": "r", "x1": "x", "x2": "x", "y1": "y", "y2": "y"}


def keeps(network: Network, node: str, client_id: str = "s", **options: object) -> tuple[Client, mqtt5.ConnAckPacket]:
    """A client that keeps its session connects."""
    client = network.client(node, client_id)
    return client, client.connect(clean=False, expiry_s=FOREVER_S, **options)


def leaves(network: Network, node: str, *filters: str, qos: int = 1, **options: Any) -> None:
    """A client that keeps its session subscribes and goes away."""
    client, _ = keeps(network, node)
    if filters:
        client.subscribe(*filters, qos=qos, **options)
    client.drop()


def publisher_at(network: Network, node: str, **options: Any) -> Client:
    client = network.client(node, "p")
    client.connect(**options)
    return client


def is_at_rest(network: Network) -> bool:
    return not any(
        node.broker.session_moves.is_busy or any("\0" in key for key in node.broker.sessions)
        for node in network.nodes.values()
    )


def open_claim(network: Network, node: str, client_id: str = "s") -> Client:
    """A client connects, and its CONNACK is not awaited."""
    client = network.client(node, client_id)
    client.open()
    client.send(mqtt5.ConnectPacket(client_id, clean_start=False, session_expiry_interval=FOREVER_S))
    return client
