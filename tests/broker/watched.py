"""A tree of processes with a watcher at every broker, by which a test knows that nothing is under way any more."""

from collections import Counter
from collections.abc import Mapping

from tests.broker.running import until
from tests.broker.tree import Tree, ancestors
from tests.mqtt.client5 import Client5
from tests.overlay_examples import TOPIC, Counts, Crossing, Step, difference

MARKER = "marker"


class Watched:
    """What watchers send crosses every link in a known number, and is left out of what was sent."""

    def __init__(self, tree: Tree, routing: str) -> None:
        self.tree = tree
        self._watchers = {name: tree.client(name) for name in tree.parents}
        self._rounds = 0
        self._markers: Counter[Crossing] = Counter()
        tree.until_linked()
        for watcher in self._watchers.values():
            watcher.subscribe(MARKER)
        self._idle = interest_of_all(tree.parents, routing)
        until(lambda: tree.counts().entries == self._idle, "that all know of the watchers")

    def settle(self, origin: str) -> None:
        """What has happened at this broker, and all that follows from it, has arrived everywhere and been counted.

        A marker leaves the origin behind all that left it before, and so at every broker on its way; then all others
        answer. By that time a message too many has been sent, and so counted.
        """
        self._mark(origin)
        self._mark(*self._watchers)

    def _mark(self, *origins: str) -> None:
        self._rounds += 1
        marker = b"%d" % self._rounds
        for origin in origins:
            self._watchers[origin].publish(MARKER, marker)
            self._markers.update(Crossing("notification", link) for link in away_from(self.tree.parents, origin))
        for watcher in self._watchers.values():
            assert {watcher.take().payload for _ in origins} == {marker}

    def counts(self) -> Counts:
        """Without the watchers' part."""
        sent, entries = self.tree.counts()
        return Counts(difference(sent, self._markers), difference(entries, self._idle))


class Processes:
    """The clients of an example on a tree of processes."""

    def __init__(self, watched: Watched, clients: Mapping[str, str]) -> None:
        self._watched = watched
        self._at = clients
        self._clients: dict[str, Client5] = {name: watched.tree.client(node) for name, node in clients.items()}
        self.counts = watched.counts

    def do(self, step: Step, payload: bytes, qos: int) -> None:
        client = self._clients[step.client]
        if step.verb == "subscribe":
            client.subscribe(TOPIC)
        elif step.verb == "unsubscribe":
            client.unsubscribe(TOPIC)
        else:
            client.publish(TOPIC, payload, qos)
        self._watched.settle(self._at[step.client])

    def received(self) -> dict[str, list[bytes]]:
        return {name: client.take_all() for name, client in self._clients.items()}


def interest_of_all(parents: Mapping[str, str | None], routing: str) -> Counter[str]:
    """The entries that there are if a client of each broker subscribes to the same."""
    told = {"flooding": slice(0), "identity": slice(1), "simple": slice(None)}[routing]  # of a broker's ancestors
    return Counter(above for name in parents for above in ancestors(parents, name)[told])


def away_from(parents: Mapping[str, str | None], origin: str) -> list[str]:
    """The links that a message crosses which all want: each once, up towards the root or else down."""
    climbs = {origin, *ancestors(parents, origin)}
    joined = [(child, parent) for child, parent in parents.items() if parent is not None]
    return [f"{child}>{parent}" if child in climbs else f"{parent}>{child}" for child, parent in joined]
