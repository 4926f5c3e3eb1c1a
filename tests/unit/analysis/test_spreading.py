"""JEDI's workload: the figures of the paper, and every draw of a small network counted one by one."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from brokerbed.analysis.predict import predict
from tests.conftest import MINIMAL, FromText

PAPER = (
    MINIMAL
    + "topology: {tree: regular, arity: 4, depth: 3}\nrouting: %s\nspreading: {coefficient: %s, rate: 390/s, types: 10, redraw: 30s}\n"
)
UNEVEN = {"b0": None, "b1": "b0", "b2": "b0", "b3": "b1", "b4": "b1", "b5": "b3"}
LINE = {"b0": None, "b1": "b0", "b2": "b1", "b3": "b2"}
COEFFICIENT, RATE, TYPES, REDRAW_S = 0.6, 3.0, 2, 10.0
ROUTINGS = ("flooding", "simple", "identity", "covering", "merging", "peer", "advertisement", "peer-advertisement")
Parents = dict[str, str | None]
Listeners = frozenset[str]


def found(from_text: FromText, text: str) -> dict[tuple[str, ...], Any]:
    (scenario,) = from_text(text).points
    return {(row.metric, *row.labels.values()): row.predicted for row in predict(scenario).rows}


@pytest.mark.parametrize(
    ("routing", "coefficient", "root", "leaf"),
    [
        ("identity", 0, 8190, 390),
        ("identity", 0.5, 8190, 544.8),
        ("identity", 1, 8190, None),
        ("advertisement", 0, 390, 390),
        ("advertisement", 0.5, 2469.8, 544.8),
        ("advertisement", 1, 8190, None),
    ],
)
def test_events_received_are_those_of_the_paper(
    from_text: FromText, routing: str, coefficient: float, root: float, leaf: float | None
) -> None:
    """Bricconi et al. 2000, Figures 2 to 4: 390 events of each of 21 dispatchers."""
    rows = found(from_text, PAPER % (routing, coefficient))
    assert rows["rate.received", "b0"] == pytest.approx(root, abs=0.05)
    assert leaf is None or rows["rate.received", "b20"] == pytest.approx(leaf, abs=0.05)
    total = sum(value for (metric, *_), value in rows.items() if metric == "rate.received")
    assert rows["rate.notifications",] == pytest.approx(total - 21 * 390)


class Counted:
    """What one type of one source costs, by the definition of the routing; the expected value over all draws."""

    def __init__(self, parents: Parents, routing: str) -> None:
        self.parents, self.routing = parents, routing
        self.children = [broker for broker, parent in parents.items() if parent is not None]

    def below(self, child: str) -> set[str]:
        return {broker for broker in self.parents if child in self.up_from(broker)}

    def up_from(self, broker: str) -> list[str]:
        parent = self.parents[broker]
        return [broker] if parent is None else [broker, *self.up_from(parent)]

    def distance(self, one: str, other: str) -> int:
        return len(set(self.up_from(one)) ^ set(self.up_from(other)))

    def draws(self, source: str) -> Iterator[tuple[Listeners, float]]:
        rings: dict[int, list[str]] = {}
        for broker in self.parents:
            if broker != source:
                rings.setdefault(self.distance(source, broker), []).append(broker)
        choices = [
            [(None, 1 - COEFFICIENT**far), *((broker, COEFFICIENT**far / len(ring)) for broker in ring)]
            for far, ring in rings.items()
        ]
        for drawn in product(*choices):
            probability = 1.0
            for _, chance in drawn:
                probability *= chance
            yield frozenset(broker for broker, _ in drawn if broker is not None), probability

    def entries(self, source: str, listeners: Listeners) -> set[tuple[str, str, str]]:
        """(child, direction, what): everything that is told over links."""
        told = set()
        for child in self.children:
            below = self.below(child)
            here, there = sorted(listeners & below), sorted(listeners - below)
            is_up, is_down = bool(here), bool(there)
            if self.routing == "flooding":
                continue
            if self.routing == "simple":
                told |= {(child, "up", listener) for listener in here}
                continue
            if self.routing == "peer-advertisement":
                is_up = is_up and source not in below
            if self.routing in ("advertisement", "peer-advertisement"):
                is_down = is_down and source in below
            elif self.routing != "peer":
                is_down = False
            told |= {(child, way, "") for way, is_told in (("up", is_up), ("down", is_down)) if is_told}
        return told

    def crossings(self, source: str, listeners: Listeners) -> list[tuple[str, str]]:
        crossed = []
        for child in self.children:
            below = self.below(child)
            is_up = source in below
            wanted = listeners - below if is_up else listeners & below
            climbs = is_up and self.routing in ("simple", "identity", "covering", "merging")
            if self.routing == "flooding" or wanted or climbs:
                crossed.append((child, "up" if is_up else "down"))
        return crossed

    def expected(self) -> dict[str, float]:
        sums = dict.fromkeys(("entries", "notifications", "control", "local"), 0.0)
        for source in self.parents:
            draws = [(self.entries(source, one), one, chance) for one, chance in self.draws(source)]
            assert sum(chance for *_, chance in draws) == pytest.approx(1)
            for told, one, chance in draws:
                sums["entries"] += TYPES * chance * len(told)
                sums["local"] += TYPES * chance * len(one)
                sums["notifications"] += RATE * chance * len(self.crossings(source, one))
                for after, other, next_chance in draws:
                    both = self.entries(
                        source, one | other
                    )  # new listeners have come, and the old ones are still there
                    changes = len(told ^ both) + len(both ^ after)
                    sums["control"] += TYPES * chance * next_chance * changes / REDRAW_S
        return sums


@pytest.mark.parametrize("parents", [UNEVEN, LINE], ids=["uneven", "line"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_draw_is_counted(from_text: FromText, parents: Parents, routing: str) -> None:
    tree = ", ".join(f"{child}: {parent or 'null'}" for child, parent in parents.items())
    text = f"topology: {{tree: explicit, parents: {{{tree}}}}}\nrouting: {routing}\n"
    spreading = f"spreading: {{coefficient: {COEFFICIENT}, rate: {RATE}/s, types: {TYPES}, redraw: {REDRAW_S}s}}\n"
    rows, counted = found(from_text, MINIMAL + text + spreading), Counted(parents, routing).expected()
    assert rows["table.remote_entries",] == pytest.approx(counted["entries"])
    assert rows["table.local_entries",] == pytest.approx(counted["local"])
    assert rows["rate.notifications",] == pytest.approx(counted["notifications"])
    assert rows["rate.control",] == pytest.approx(counted["control"])
    if routing in ("advertisement", "peer-advertisement"):
        depths = sum(len(Counted(parents, routing).up_from(broker)) - 1 for broker in parents)
        advertised = depths if routing == "advertisement" else len(parents) * (len(parents) - 1)
        assert rows["table.advertisements",] == TYPES * advertised


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("routing: {algorithm: merging, threshold: 10}\n", "merging with spreading"),
        ("subscribers: [{id: s, broker: b0, topic: spread/b1/+}]\n", "a peer that has the same topics (s)"),
        ("publishers: [{id: p, broker: b0, topic: spread/b1/3, rate: 1/s}]\n", "a peer that has the same topics (p)"),
    ],
)
def test_what_the_formulas_do_not_cover_has_no_prediction(from_text: FromText, more: str, what: str) -> None:
    text = PAPER.replace("routing: %s\n", "") % 0.5
    prediction = predict(from_text(text + more).points[0])
    assert {row.predicted for row in prediction.rows} == {None}
    assert what in prediction.notes[0]


def test_peers_beside_it_have_their_own_rows(from_text: FromText) -> None:
    text = PAPER % ("identity", 0.5)
    peers = "publishers: [{id: p, broker: b1, topic: t, rate: 7/s}]\nsubscribers: [{id: s, broker: b0, topic: t}]\n"
    alone, beside = found(from_text, text), found(from_text, text + peers)
    assert beside["rate.notifications",] == pytest.approx(alone["rate.notifications",] + 7)
    assert beside["delivery.ratio", "p", "s"] == 1
