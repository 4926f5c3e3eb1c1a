"""A simulated host that dies at a chosen operation of a store."""

from typing import Any

from brokerbed.broker.core import persist
from brokerbed.orchestrator.simulator.network import Host

DEAD_NS = 100_000_000  # how long a broker is dead


class CrashAtCommit:
    """Counts the commits of all hosts of a network. With number 0 nobody dies."""

    def __init__(self, number: int, when: str) -> None:
        self.number = number
        self.when = when
        self.commits = 0

    def is_now(self) -> bool:
        self.commits += 1
        return self.commits == self.number


class CrashingHost(Host):
    """Dies just before a commit, or just after it and before any output, and starts again. Needs a `commit_ns`."""

    def __init__(self, crash: CrashAtCommit, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._crash = crash

    def _committed(self, life: int) -> None:
        if life != self.lives or not self.is_up or self.is_paused or not self._crash.is_now():
            super()._committed(life)
            return
        if self._crash.when == "after":
            assert self.store is not None
            self.store.commit(persist.take(self.broker))
        self.crash()
        self.loop.at(self.loop.now_ns + DEAD_NS, lambda _: self.start(), None)
