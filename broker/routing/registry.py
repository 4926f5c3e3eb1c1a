"""The routing algorithms by name: those of this folder, and those of other packages.

Another package registers an algorithm with an entry point of the group `brokerbed.routing`, whose name is the
algorithm's and whose value leads to its Algorithm. These are looked up only when a name is not one of ours, so that a
broker that needs none of them starts without searching the installed packages.
"""

from typing import TYPE_CHECKING

from brokerbed.broker.routing import flooding, identity, simple
from brokerbed.broker.routing.strategy import Algorithm

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "brokerbed.routing"
DEFAULT = identity.ALGORITHM.name
BUILT_IN = {it.name: it for it in (flooding.ALGORITHM, simple.ALGORITHM, identity.ALGORITHM)}
_loaded: dict[str, Algorithm] = {}  # of other packages


def algorithm(name: str) -> Algorithm:
    """KeyError if there is none of that name."""
    found = BUILT_IN.get(name) or _loaded.get(name)
    if found is None:
        entry = next((it for it in _registered() if it.name == name), None)
        if entry is None:
            raise KeyError(name)
        found = _loaded[name] = entry.load()
        assert found.name == name, f"{entry.value} is called {found.name}, and its entry point {name}"
    return found


def names() -> list[str]:
    """Ours first."""
    return [*BUILT_IN, *sorted({entry.name for entry in _registered()} - BUILT_IN.keys())]


def _registered() -> "EntryPoints":
    from importlib.metadata import entry_points  # takes a while to import, and most brokers do without

    return entry_points(group=GROUP)
