"""The contract of a store, in which a driver keeps a broker's durable state, and a store in memory for simulations."""

from collections.abc import Iterable
from typing import Protocol

from brokerbed.broker.core.rows import Row


class StoreFullError(Exception):
    """The store cannot be written now. It may become writable again."""


class Store(Protocol):
    def load(self) -> Iterable[tuple[int, Row]]:
        """All rows, in the order of their keys."""

    def commit(self, rows: list[tuple[int, Row | None]]) -> None:
        """Write all of these rows, or none of them and raise StoreFullError. None removes a row."""


class MemoryStore:
    """A store that outlives its broker, but not the process."""

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
