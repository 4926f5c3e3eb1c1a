"""Examples worked out by hand from the papers: which messages cross which links, for each routing algorithm.

One table of steps, played in memory (`tests/unit/broker/test_overlay_examples.py`) and by processes on real sockets
(`tests/broker/test_tree_examples.py`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

Key = TypeVar("Key")
Verb = Literal["subscribe", "unsubscribe", "publish"]
KIND: dict[Verb, str] = {"subscribe": "subscribe", "unsubscribe": "unsubscribe", "publish": "notification"}
TOPIC = "f"  # of all steps

MUEHL = {"R": None, "B1": "R", "B2": "B1", "B3": "B1", "B4": "B1"}
MUEHL_CLIENTS = {"C1": "B2", "C2": "B3", "C3": "B4"}
BINARY = {f"n{i}": f"n{(i - 1) // 2}" if i else None for i in range(15)}  # four levels; leaves n7 ... n14


@dataclass(frozen=True)
class Step:
    """What one client does, the links that are crossed because of it (each once), and what is so afterwards."""

    verb: Verb
    client: str
    links: str  # "B2>B1 B1>R": sender>receiver
    to: str = ""  # the clients that a publication reaches
    entries: Mapping[str, int] | None = None  # entries for children at each broker that has any; None: as before


class Crossing(NamedTuple):
    kind: str
    link: str


class Counts(NamedTuple):
    sent: Counter[Crossing]  # messages over links, all since the beginning
    entries: Counter[str]  # entries that point at children, by broker


class Ground(Protocol):
    """A tree of brokers with the clients of an example."""

    def do(self, step: Step, payload: bytes, qos: int) -> None:
        """Does it, and returns when all that follows from it has happened and been counted."""

    def counts(self) -> Counts:
        """What has crossed the links so far, and which entries there are because of this example."""

    def received(self) -> dict[str, list[bytes]]:
        """The payloads that each client got since it was asked last."""


def play(ground: Ground, steps: Sequence[Step], qos: int) -> Counter[str]:
    """Does all steps and compares each with its outcome; returns how many messages of each kind there were."""
    totals: Counter[str] = Counter()
    before = ground.counts()
    for number, step in enumerate(steps):
        payload = b"%d" % number
        ground.do(step, payload, qos)
        after = ground.counts()
        crossed = difference(after.sent, before.sent)
        assert crossed == {Crossing(KIND[step.verb], link): 1 for link in step.links.split()}, step
        assert after.entries == (before.entries if step.entries is None else step.entries), step
        reached = {client: got for client, got in ground.received().items() if got}
        assert reached == {client: [payload] for client in step.to.split()}, step
        totals[KIND[step.verb]] += sum(crossed.values())
        before = after
    return totals


def difference(after: Counter[Key], before: Counter[Key]) -> Counter[Key]:
    """What has changed, and by how much; what became less is negative."""
    return Counter({key: after[key] - before[key] for key in after | before if after[key] != before[key]})


def subscribe(client: str, links: str, **entries: int) -> Step:
    return Step("subscribe", client, links, entries=entries)


def unsubscribe(client: str, links: str, **entries: int) -> Step:
    return Step("unsubscribe", client, links, entries=entries)


def publish(client: str, links: str, to: str = "") -> Step:
    return Step("publish", client, links, to)


# The illustration of Mühl et al. 2009 (Sect. 2, Fig. 1), which is the fifth step of identity-based routing; around it,
# what is so before and after each subscription. C1 publishes too: nothing goes back to B2, where it came from.
ILLUSTRATION = {
    "identity": (
        publish("C3", "B4>B1 B1>R"),
        subscribe("C1", "B2>B1 B1>R", B1=1, R=1),
        publish("C3", "B4>B1 B1>R B1>B2", to="C1"),
        subscribe("C2", "B3>B1", B1=2, R=1),
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3", to="C1 C2"),
        publish("C1", "B2>B1 B1>R B1>B3", to="C1 C2"),
        unsubscribe("C1", "B2>B1", B1=1, R=1),
        publish("C3", "B4>B1 B1>R B1>B3", to="C2"),
        unsubscribe("C2", "B3>B1 B1>R"),
        publish("C3", "B4>B1 B1>R"),
    ),
    "simple": (
        publish("C3", "B4>B1 B1>R"),
        subscribe("C1", "B2>B1 B1>R", B1=1, R=1),
        publish("C3", "B4>B1 B1>R B1>B2", to="C1"),
        subscribe("C2", "B3>B1 B1>R", B1=2, R=2),
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3", to="C1 C2"),
        publish("C1", "B2>B1 B1>R B1>B3", to="C1 C2"),
        unsubscribe("C1", "B2>B1 B1>R", B1=1, R=1),
        publish("C3", "B4>B1 B1>R B1>B3", to="C2"),
        unsubscribe("C2", "B3>B1 B1>R"),
        publish("C3", "B4>B1 B1>R"),
    ),
    "flooding": (
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3"),
        subscribe("C1", ""),
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3", to="C1"),
        subscribe("C2", ""),
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3", to="C1 C2"),
        publish("C1", "B2>B1 B1>R B1>B3 B1>B4", to="C1 C2"),
        unsubscribe("C1", ""),
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3", to="C2"),
        unsubscribe("C2", ""),
        publish("C3", "B4>B1 B1>R B1>B2 B1>B3"),
    ),
}


@dataclass(frozen=True)
class Static:
    """A static situation of van Vliet 2007 (Sect. 2.2): all subscribe, the root publishes once; then the way back."""

    clients: Mapping[str, str]
    there: Sequence[Step]
    back: Sequence[Step]
    subscriptions: int  # as the thesis counts them
    notifications: int

    def play(self, ground: Ground, qos: int) -> None:
        totals = play(ground, self.there, qos)
        assert (totals["subscribe"], totals["notification"]) == (self.subscriptions, self.notifications)
        play(ground, self.back, qos)


_TO_7, _FROM_7 = "n0>n1 n1>n3 n3>n7", "n7>n3 n3>n1 n1>n0"

STATIC = {
    "one subscriber": Static(
        {"P": "n0", "S7": "n7"},
        (subscribe("S7", _FROM_7, n3=1, n1=1, n0=1), publish("P", _TO_7, to="S7")),
        (unsubscribe("S7", _FROM_7), publish("P", "")),
        subscriptions=3,
        notifications=3,
    ),
    "siblings and one in the other half": Static(
        {"P": "n0", "S7": "n7", "S8": "n8", "S11": "n11"},
        (
            subscribe("S7", _FROM_7, n3=1, n1=1, n0=1),
            subscribe("S8", "n8>n3", n3=2, n1=1, n0=1),
            subscribe("S11", "n11>n5 n5>n2 n2>n0", n3=2, n1=1, n0=2, n5=1, n2=1),
            publish("P", f"{_TO_7} n3>n8 n0>n2 n2>n5 n5>n11", to="S7 S8 S11"),
        ),
        (
            unsubscribe("S8", "n8>n3", n3=1, n1=1, n0=2, n5=1, n2=1),
            publish("P", f"{_TO_7} n0>n2 n2>n5 n5>n11", to="S7 S11"),
            unsubscribe("S7", _FROM_7, n0=1, n5=1, n2=1),
            unsubscribe("S11", "n11>n5 n5>n2 n2>n0"),
            publish("P", ""),
        ),
        subscriptions=7,
        notifications=7,
    ),
    "the three leftmost leaves": Static(
        {"P": "n0", "S7": "n7", "S8": "n8", "S9": "n9"},
        (
            subscribe("S7", _FROM_7, n3=1, n1=1, n0=1),
            subscribe("S8", "n8>n3", n3=2, n1=1, n0=1),
            subscribe("S9", "n9>n4 n4>n1", n3=2, n1=2, n0=1, n4=1),
            publish("P", f"{_TO_7} n3>n8 n1>n4 n4>n9", to="S7 S8 S9"),
        ),
        (
            unsubscribe("S7", "n7>n3", n3=1, n1=2, n0=1, n4=1),
            unsubscribe("S8", "n8>n3 n3>n1", n1=1, n0=1, n4=1),
            publish("P", "n0>n1 n1>n4 n4>n9", to="S9"),
            unsubscribe("S9", "n9>n4 n4>n1 n1>n0"),
            publish("P", ""),
        ),
        subscriptions=6,
        notifications=6,
    ),
}
EVERYWHERE = " ".join(f"{parent}>{child}" for child, parent in BINARY.items() if parent is not None)
FLOOD = Static({"P": "n0"}, (publish("P", EVERYWHERE),), (), subscriptions=0, notifications=14)
