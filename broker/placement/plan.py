"""Which children have to get which parents, one after the other, so that a neighbourhood becomes another tree.

In every step one broker gets another parent, which is a neighbour of its parent so far, so the brokers form a tree
after each step. The broker nearest to the root stays where it is.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from brokerbed.broker.placement.search import Link

Parents = Mapping[int, int | None]  # by broker; the broker nearest to the root has None


class Step(NamedTuple):
    child: int
    old: int  # its parent so far
    new: int


def steps(parents: Parents, tree: Iterable[Link]) -> list[Step]:
    """The steps from the tree with these parents to a tree of the same brokers.

    Brokers are moved in the order of their distance from the root in the new tree. So when a broker is moved, all
    brokers between its new parent and the root are in their places, it is not among them, and the way there does not
    lead through brokers below itself.
    """
    found: list[Step] = []
    now = dict(parents)
    for child, parent in _from_the_root(next(it for it, above in parents.items() if above is None), tree):
        above_new = ancestors(now, parent)
        while (old := now[child]) != parent:
            assert old is not None
            if old in above_new:
                new = above_new[above_new.index(old) - 1]
            else:
                up = now[old]
                assert up is not None
                new = up
            found.append(Step(child, old, new))
            now[child] = new
    return found


def after(parents: Parents, made: Iterable[Step]) -> dict[int, int | None]:
    """The parents after some steps."""
    now = dict(parents)
    for step in made:
        now[step.child] = step.new
    return now


def ancestors(parents: Parents, broker: int) -> list[int]:
    """The broker, its parent and so on, up to the root."""
    found, above = [broker], parents[broker]
    while above is not None:
        found.append(above)
        above = parents[above]
    return found


def path(parents: Parents, begin: int, end: int) -> list[int]:
    """The brokers on the way, without the first one."""
    up, down = ancestors(parents, begin), ancestors(parents, end)
    common = next(it for it in up if it in down)
    return [*up[1 : up.index(common) + 1], *reversed(down[: down.index(common)])]


def _from_the_root(root: int, tree: Iterable[Link]) -> list[tuple[int, int]]:
    """Every broker but the root, with its parent, those near the root first."""
    neighbours: dict[int, list[int]] = {}
    for one, other in sorted(tree):
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    found: list[tuple[int, int]] = []
    queue, seen = [root], {root}
    for broker in queue:
        for other in neighbours.get(broker, ()):
            if other not in seen:
                seen.add(other)
                queue.append(other)
                found.append((other, broker))
    return found
