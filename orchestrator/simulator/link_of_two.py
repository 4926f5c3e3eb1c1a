"""The link between a child and one of its parents, for faults: it stays between these two when the child moves."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brokerbed.orchestrator.simulator.network import Host, Uplink


class LinkOfTwo:
    def __init__(self, uplink: "Uplink", parent: "Host") -> None:
        self.child = uplink.child
        self.parent = parent
        self._uplink = uplink

    @property
    def is_present(self) -> bool:
        return self._uplink.parent is self.parent

    def of_both(self) -> "LinkOfTwo":
        return self

    @property
    def is_connected(self) -> bool:
        return self.is_present and self._uplink.is_connected

    def cut(self, *ways: str) -> None:
        if self.is_present:
            self._uplink.cut(*ways)

    def repair(self, *ways: str) -> None:
        self._uplink.repair(*ways, parent=self.parent.name)

    def is_held(self, way: str) -> bool:
        return self._uplink.is_held(way, self.parent.name)
