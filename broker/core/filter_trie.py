"""Filters with wildcards, and which of them a topic matches. What a filter stands for is up to the caller.

A node stands for several levels at once where no two filters differ, so that a filter of many levels costs little more
than one of a few, in memory and when topics are matched.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from operator import eq, itemgetter
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
Levels = tuple[str, ...]


class _Node(Generic[Value]):
    """The filters that begin with the same levels. A topic reaches the node if it matches these."""

    __slots__ = ("children", "end", "label", "literals", "rest", "select", "value")

    def __init__(self, start: int, label: Levels) -> None:
        self.children: dict[str, _Node[Value]] | None = None  # by the first level of their labels
        self.value: Value | None = None  # of the filter that ends here
        self.rest: Value | None = None  # of the filter that goes on with `#` only
        self.relabel(start, label)

    def relabel(self, start: int, label: Levels) -> None:
        """The node stands for these levels. The first one, at `start`, is that under which the parent has the node."""
        self.label = label
        self.end = start + len(label)
        places = [place for place, level in enumerate(label[1:], start + 1) if level != "+"]
        self.select: Callable[[Sequence[str]], Any] | None = itemgetter(*places) if places else None
        self.literals = self.select(("",) * start + label) if self.select is not None else None


class FilterTrie(Generic[Value]):
    def __init__(self) -> None:
        self._root: _Node[Value] = _Node(0, ())

    def get(self, topic_filter: str) -> Value | None:
        levels, is_rest = _split(topic_filter)
        path = self._path(levels)
        if path is None:
            return None
        return path[-1].rest if is_rest else path[-1].value

    def put(self, topic_filter: str, value: Value) -> None:
        levels, is_rest = _split(topic_filter)
        node = self._made(levels)
        if is_rest:
            node.rest = value
        else:
            node.value = value

    def remove(self, topic_filter: str) -> None:
        """Remove a filter that is there."""
        levels, is_rest = _split(topic_filter)
        path = self._path(levels)
        assert path is not None
        node = path[-1]
        if is_rest:
            node.rest = None
        else:
            node.value = None
        if len(path) > 1 and node.children is None and node.value is None and node.rest is None:
            parent = path[-2]
            assert parent.children is not None
            del parent.children[node.label[0]]
            if not parent.children:
                parent.children = None
            path.pop()
        if len(path) > 1:
            _join_with_only_child(path[-1], path[-2])

    @property
    def nodes(self) -> int:
        """How many nodes there are besides the root."""
        nodes = [self._root]
        for node in nodes:
            nodes += (node.children or {}).values()
        return len(nodes) - 1

    def matching(self, topic: str) -> list[Value]:
        """The values of all filters that the topic matches."""
        levels = topic.split("/")
        count = len(levels)
        found: list[Value] = []
        nodes = [self._root] if topic[0] != "$" else self._nodes_for(levels[0])
        for node in nodes:  # which grows meanwhile
            end = node.end
            if end > count:
                continue
            select = node.select
            if select is not None and select(levels) != node.literals:
                continue
            if node.rest is not None:
                found.append(node.rest)
            if end == count:
                if node.value is not None:
                    found.append(node.value)
            elif (children := node.children) is not None:
                if (child := children.get(levels[end])) is not None:
                    nodes.append(child)
                if (child := children.get("+")) is not None:
                    nodes.append(child)
        return found

    def _nodes_for(self, level: str) -> list[_Node[Value]]:
        """The node for a first level that begins with $, which no wildcard matches [MQTT-4.7.2-1]."""
        node = (self._root.children or {}).get(level)
        return [] if node is None else [node]

    def _path(self, levels: Levels) -> list[_Node[Value]] | None:
        """The nodes from the root to the one that stands for these levels; None if there is no such node."""
        node = self._root
        path, at = [node], 0
        while at < len(levels):
            child = None if node.children is None else node.children.get(levels[at])
            if child is None or child.label != levels[at : child.end]:
                return None
            node, at = child, child.end
            path.append(node)
        return path

    def _made(self, levels: Levels) -> _Node[Value]:
        """The node that stands for these levels, which is made if there is none."""
        node, at = self._root, 0
        while at < len(levels):
            if node.children is None:
                node.children = {}
            child = node.children.get(levels[at])
            if child is None:
                child = node.children[levels[at]] = _Node(at, levels[at:])
            elif child.label != levels[at : child.end]:
                common = sum(1 for _ in takewhile(bool, map(eq, child.label, levels[at:])))
                upper: _Node[Value] = _Node(at, child.label[:common])
                node.children[levels[at]] = upper
                child.relabel(upper.end, child.label[common:])
                upper.children = {child.label[0]: child}
                child = upper
            node, at = child, child.end
        return node


def _split(topic_filter: str) -> tuple[Levels, bool]:
    """The levels of a filter without `#`, and whether it ends with that."""
    levels = tuple(topic_filter.split("/"))
    return (levels[:-1], True) if levels[-1] == "#" else (levels, False)


def _join_with_only_child(node: _Node[Any], parent: _Node[Any]) -> None:
    """A node that only leads to one other becomes one with it."""
    if node.value is not None or node.rest is not None or node.children is None or len(node.children) != 1:
        return
    (child,) = node.children.values()
    child.relabel(parent.end, node.label + child.label)
    assert parent.children is not None
    parent.children[child.label[0]] = child
