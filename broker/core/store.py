"""Where a driver keeps what a broker wants to survive: the contract, and a store in memory for simulated brokers."""

from collections.abc import Iterable
from typing import Protocol

from brokerbed.broker.core.persist import Row


class StoreFullError(Exception):
    """Nothing can be written now; later it may be possible again."""


class Store(Protocol):
    def load(self) -> Iterable[tuple[int, Row]]:
        """All rows, in the order of their keys."""

    def commit(self, rows: list[tuple[int, Row | None]]) -> None:
        """All of these or, with StoreFullError, none; None removes a row."""


class MemoryStore:
    """Survives its broker, not its process."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def load(self) -> Iterable[tuple[int, Row]]:
        return sorted(self.rows.items())

    def commit(self, rows: list[tuple[int, Row | None]]) -> None:
        for key, row in rows:
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
