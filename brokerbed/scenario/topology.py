"""Rooted trees of brokers: what shapes there are and how to walk them.

Brokers are kept level by level, each level ordered by parent, so the children of a broker stand side by side
and a walk over the tree is a walk over the levels: no recursion, whatever the depth.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BROKERS_MAX = 100_000  # a process, container or simulated core each: more is a typing error, not an experiment
CIRCLE_SHOWN_MAX = 9  # brokers of a circle that an error message names
CHILDREN_OF_A_LEVELS_BROKER = 2  # Mühl et al. 2009: "127 brokers arranged in a binary tree"

Floats = NDArray[np.float64]


class TopologyError(ValueError):
    """The description is no rooted tree. `broker` is the entry to blame, if there is one."""

    def __init__(self, problem: str, broker: str | None = None) -> None:
        super().__init__(problem)
        self.broker = broker


@dataclass(frozen=True, eq=False)
class Tree:
    """`names[0]` is the root; `parents[v]` is the position of v's parent, -1 for the root."""

    names: tuple[str, ...]
    parents: NDArray[np.int64]
    level_starts: tuple[int, ...]  # where each level begins; the last one ends at len(names)

    def __post_init__(self) -> None:
        assert self.parents[0] == -1
        assert (np.diff(self.parents) >= 0).all()
        self.parents.setflags(write=False)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def index(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Child and parent of every link."""
        return tuple((self.names[child], self.names[int(self.parents[child])]) for child in range(1, len(self)))

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        sizes = np.diff([*self.level_starts, len(self)])
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def _sibling_groups(self) -> tuple[tuple[slice, NDArray[np.int64], NDArray[np.int64]], ...]:
        """Deepest level first: the level, where in it each group of siblings begins, and the groups' parents."""
        groups = []
        for start, stop in pairwise([*self.level_starts[1:], len(self)]):
            parents = self.parents[start:stop]
            firsts = np.flatnonzero(np.diff(parents, prepend=-1))
            groups.append((slice(start, stop), firsts, parents[firsts]))
        return tuple(reversed(groups))

    def subtree_sums(self, values: Floats) -> Floats:
        """For every broker the sum of `values` over itself and everything below it (axis 0 = brokers)."""
        sums = values.astype(np.float64)
        for level, firsts, parents in self._sibling_groups:
            sums[parents] += np.add.reduceat(sums[level], firsts, axis=0)
        return sums

    def sums_inside_and_outside(self, values: Floats) -> tuple[Floats, Floats]:
        """For every broker the sums of non-negative `values` over its subtree and over all other brokers.

        Where all other brokers have 0 the second sum is exactly 0, which a difference of rounded sums would not be.
        """
        sums, counts = np.split(self.subtree_sums(np.hstack((values, values != 0))), 2, axis=1)
        outside = np.where(counts < counts[0], np.maximum(sums[0] - sums, 0.0), 0.0)
        return sums, outside

    def children_sums(self, values: Floats) -> Floats:
        """For every broker the sum of `values` over its children."""
        sums = np.zeros_like(values, dtype=np.float64)
        np.add.at(sums, self.parents[1:], values[1:])
        return sums

    def are_neighbours(self, one: str, other: str) -> bool:
        a, b = self.index[one], self.index[other]
        return int(self.parents[a]) == b or int(self.parents[b]) == a

    def path(self, start: str, end: str) -> list[int]:
        """The brokers from `start` to `end`, both included."""
        up, down = [self.index[start]], [self.index[end]]
        while up[-1] != down[-1]:
            if self.depths[up[-1]] >= self.depths[down[-1]]:
                up.append(int(self.parents[up[-1]]))
            else:
                down.append(int(self.parents[down[-1]]))
        return up + down[-2::-1]


def levels(brokers: int, width: int) -> Tree:
    """Level sizes 1, 2, 4, ... capped at `width`; two children a broker, filled from the left."""
    sizes = [1]
    left = brokers - 1
    while left > 0:
        sizes.append(min(CHILDREN_OF_A_LEVELS_BROKER * sizes[-1], width, left))
        left -= sizes[-1]
    return _numbered(sizes, CHILDREN_OF_A_LEVELS_BROKER)


def regular(arity: int, depth: int) -> Tree:
    """`depth` levels; every broker above the last level has `arity` children."""
    sizes = [1]
    for _ in range(depth - 1):
        sizes.append(sizes[-1] * arity)
        if sum(sizes) > BROKERS_MAX:
            raise TopologyError(f"arity {arity} and depth {depth} make more than {BROKERS_MAX} brokers")
    return _numbered(sizes, arity)


def line(brokers: int) -> Tree:
    return _numbered([1] * brokers, 1)


def star(brokers: int) -> Tree:
    return _numbered([1, brokers - 1] if brokers > 1 else [1], brokers)


def explicit(parents: Mapping[str, str | None]) -> Tree:
    """Any rooted tree, given as broker -> parent (None for the root)."""
    roots = [name for name, parent in parents.items() if parent is None]
    if not roots:
        raise TopologyError("no broker is the root; give exactly one broker the parent null")
    if len(roots) > 1:
        raise TopologyError(f"two roots, {roots[0]} and {roots[1]}; exactly one broker has the parent null", roots[1])
    children: dict[str, list[str]] = {name: [] for name in parents}
    for name, parent in parents.items():
        if parent is None:
            continue
        if parent not in children:
            raise TopologyError(f"the parent {parent} is no broker of this tree", name)
        children[parent].append(name)
    names, starts = [roots[0]], [0]
    while (level := names[starts[-1] :]) and any(children[name] for name in level):
        starts.append(len(names))
        names.extend(child for name in level for child in children[name])
    if len(names) < len(parents):
        reached = set(names)
        circle = list(_circle(parents, next(name for name in parents if name not in reached)))
        shown = circle if len(circle) <= CIRCLE_SHOWN_MAX else [*circle[: CIRCLE_SHOWN_MAX - 1], "...", circle[-1]]
        raise TopologyError(f"the parents run in a circle: {' -> '.join(shown)}", circle[0])
    index = {name: position for position, name in enumerate(names)}
    positions = [-1 if (parent := parents[name]) is None else index[parent] for name in names]
    return Tree(tuple(names), np.array(positions, dtype=np.int64), tuple(starts))


def _circle(parents: Mapping[str, str | None], start: str) -> Iterator[str]:
    """From a broker that never reaches the root: the circle it ends in, first broker repeated at the end."""
    seen: dict[str, None] = {}
    at: str | None = start
    while at is not None and at not in seen:
        seen[at] = None
        at = parents[at]
    assert at is not None
    yield from list(seen)[list(seen).index(at) :]
    yield at


def _numbered(sizes: list[int], children_max: int) -> Tree:
    """b0, b1, ... level by level; position j of a level hangs below position j // children_max of the one above."""
    starts = [0, *np.cumsum(sizes[:-1]).tolist()]
    parents = np.full(sum(sizes), -1, dtype=np.int64)
    for above, start, size in zip(starts, starts[1:], sizes[1:], strict=False):
        parents[start : start + size] = above + np.arange(size) // children_max
    return Tree(tuple(f"b{i}" for i in range(len(parents))), parents, tuple(starts))
