"""At which broker each client of a process is at the moment."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class Whereabouts(Generic[C]):
    """The clients by broker. Those that roam are registered anew with every move."""

    def __init__(self) -> None:
        self._clients: dict[str, dict[int, C]] = {}  # by broker, and in the order in which they came there

    def at(self, broker: str) -> list[C]:
        return list(self._clients.get(broker, {}).values())

    def brokers_with(self, is_meant: Callable[[C], bool]) -> Iterator[str]:
        """The brokers with at least one such client."""
        return (broker for broker, clients in self._clients.items() if any(map(is_meant, clients.values())))

    def add(self, client: C, broker: str) -> None:
        self._clients.setdefault(broker, {})[id(client)] = client

    def move(self, client: C, from_broker: str, broker: str) -> None:
        del self._clients[from_broker][id(client)]
        self.add(client, broker)
