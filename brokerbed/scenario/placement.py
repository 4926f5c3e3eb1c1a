"""Which leaves of a tree have the fewest or the most links on their ways to the root, together. Exact on any tree.

Paper: van Vliet 2007, section 2.2, whose best and worst cases are those of regular trees.
"""

from brokerbed.scenario.topology import Tree


def cheapest_leaves(tree: Tree, count: int) -> tuple[int, ...]:
    return _leaves(tree, count, 1)


def dearest_leaves(tree: Tree, count: int) -> tuple[int, ...]:
    return _leaves(tree, count, -1)


def _leaves(tree: Tree, count: int, cost_of_link: int) -> tuple[int, ...]:
    """The positions of `count` leaves whose links to the root cost least; among equals, the first in broker order.

    A dynamic programme from the leaves to the root: for every number of leaves below a broker, the least value. A value
    is an integer whose high digits are the cost, and whose low digits are the leaves, one bit each, subtracted, so that
    of two sets with the same cost the one that has the first leaf in which they differ has the lower value. Values of
    separate subtrees add up.
    """
    bits = len(tree)
    one_link = cost_of_link << bits
    values: list[list[int]] = [[] for _ in range(len(tree))]  # by broker: values by the number of leaves below it
    for broker in range(len(tree) - 1, -1, -1):
        below = values[broker] or [0, -(1 << (bits - 1 - broker))]  # a leaf
        if broker == 0:
            chosen = -below[count] % (1 << bits)
            return tuple(place for place in range(bits) if chosen >> (bits - 1 - place) & 1)
        used = [0, *(value + one_link for value in below[1:])]
        parent = int(tree.parents[broker])
        values[parent] = _together(values[parent], used, count) if values[parent] else used[: count + 1]
        values[broker] = []
    raise AssertionError("a tree has a root")


def _together(some: list[int], others: list[int], count: int) -> list[int]:
    sums: list[int | None] = [None] * (min(count, len(some) + len(others) - 2) + 1)
    for number, value in enumerate(some):
        for more, other in enumerate(others[: len(sums) - number]):
            known = sums[number + more]
            if known is None or value + other < known:
                sums[number + more] = value + other
    return [value for value in sums if value is not None]
