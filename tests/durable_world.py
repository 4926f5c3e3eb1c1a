"""A broker core with a store in memory: it can die between any two steps of a test and start again from its rows."""

from typing import Any

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.restore import NUMBER, restore
from brokerbed.broker.core.store import MemoryStore
from tests.core_client import Client, World


class DurableWorld(World):
    def __init__(self, **config: Any) -> None:
        self.store = MemoryStore()
        self._config = config
        self._death: str | None = None
        super().__init__(**config)
        self.restart()

    def restart(self, **config: Any) -> None:
        """The broker loses everything that it has not stored; its clients have to connect again."""
        self._death = None
        for connection in self.broker.connections:
            if isinstance(connection.driver, Client):
                connection.driver.is_closed = True
                connection.driver.inbox = b""
        self.broker = Broker(BrokerConfig(**{**self._config, **config}), is_durable=True)
        restore(self.broker, self.store.load(), self.now_ns)
        self.settle()

    def die_at_commit(self, when: str) -> None:
        """Restart `before` the next commit, or `after` it; either way before any output has left."""
        self._death = when

    def settle(self) -> None:
        """As a driver with a store does: no output leaves before everything is stored."""
        if self.broker.unsaved:
            death, self._death = self._death, None
            if death != "before":
                self.store.commit(persist.take(self.broker))
                self.check_rows()
            if death is not None:
                self.restart()
                return
        super().settle()
        if self.broker.unsaved:
            self.settle()

    def rows(self, kind: int) -> dict[int, Any]:
        """The stored rows of one kind, by number."""
        return {key & NUMBER: row for key, row in self.store.rows.items() if key & ~NUMBER == kind}

    def check_rows(self) -> None:
        """The rows fit together: no message is missing or left over, and no row belongs to a session that is gone."""
        deliveries, sessions = self.rows(persist.DELIVERY), self.rows(persist.SESSION)
        wanted = {row[1] for row in deliveries.values() if isinstance(row[1], int)}
        for kind in (persist.RETAINED, persist.ENTERING):
            wanted |= {row[0] for row in self.rows(kind).values()}
        assert set(self.rows(persist.MESSAGE)) == wanted
        for kind in (persist.SUBSCRIPTION, persist.RECEIVED, persist.DELIVERY, persist.ENTRY):
            assert {row[0] for row in self.rows(kind).values()} <= set(sessions)
        sent = [(row[0], row[4]) for row in deliveries.values() if row[4]]
        assert len(sent) == len(set(sent)), "two deliveries of a session have the same packet id"
        assert set(self.rows(persist.RECEIVED_ID)) <= set(sessions)
