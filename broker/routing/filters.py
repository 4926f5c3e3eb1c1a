"""An index of topic filters, which finds those that cover or overlap another one among many filters.

A filter covers another one if it matches every topic that the other one matches, and strictly if the reverse is not
true. Two filters overlap if some topic matches both. Topics that begin with `$` are matched by no filter that begins
with a wildcard (MQTT 5, section 4.7.2).
"""

from collections.abc import Iterator

from brokerbed.topics import filter_levels


class _Node:
    __slots__ = ("children", "filters")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.filters: dict[str, None] = {}  # the filters that end here; more than one only if they are equivalent


class FilterIndex:
    """A set of filters without shared groups, as a trie of their levels. Results are in a fixed order."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, topic_filter: str) -> None:
        node = self._root
        for level in filter_levels(topic_filter):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.filters[topic_filter] = None

    def discard(self, topic_filter: str) -> None:
        path, node = list[tuple[_Node, str]](), self._root
        for level in filter_levels(topic_filter):
            path.append((node, level))
            child = node.children.get(level)
            if child is None:
                return
            node = child
        node.filters.pop(topic_filter, None)
        while path and not (node.filters or node.children):
            node, level = path.pop()
            del node.children[level]

    def cover_of(self, topic_filter: str) -> str | None:
        """A filter in the index that strictly covers this one, if there is one: as narrow a one as is easily found."""
        levels = filter_levels(topic_filter)
        for node, is_equivalent in _covering_nodes(self._root, levels, 0, True):
            if node.filters and not is_equivalent:
                return next(iter(node.filters))
        return None

    def covered_by(self, topic_filter: str) -> list[str]:
        """The filters in the index that this one strictly covers."""
        levels = filter_levels(topic_filter)
        found = list[str]()
        for node in _covered_nodes(self._root, levels):
            found += node.filters
        equivalent = self._node(levels)
        return found if equivalent is None else [other for other in found if other not in equivalent.filters]

    def overlapping(self, topic_filter: str) -> list[str]:
        """The filters in the index that match a topic which this one matches, too."""
        found = list[str]()
        for node in _overlapping_nodes(self._root, filter_levels(topic_filter)):
            found += node.filters
        return found

    def overlaps(self, topic_filter: str) -> bool:
        """Whether there are any such filters."""
        return any(node.filters for node in _overlapping_nodes(self._root, filter_levels(topic_filter)))

    def _node(self, levels: tuple[str, ...]) -> _Node | None:
        node: _Node | None = self._root
        for level in levels:
            if node is None:
                return None
            node = node.children.get(level)
        return node


def _covering_nodes(
    node: _Node, levels: tuple[str, ...], depth: int, is_equivalent: bool
) -> Iterator[tuple[_Node, bool]]:
    """The nodes of filters that cover the one with these levels, narrow ones first; whether each is its own node."""
    children = node.children
    if depth == len(levels):
        yield node, is_equivalent
        if (rest := children.get("#")) is not None:
            yield rest, False
        return
    level = levels[depth]
    if (child := children.get(level)) is not None:
        if level == "#":
            yield child, is_equivalent
            return
        yield from _covering_nodes(child, levels, depth + 1, is_equivalent)
    if level not in ("+", "#") and (depth or not level.startswith("$")) and (child := children.get("+")) is not None:
        yield from _covering_nodes(child, levels, depth + 1, False)
    if level != "#" and (rest := children.get("#")) is not None:
        yield rest, False


def _covered_nodes(root: _Node, levels: tuple[str, ...]) -> Iterator[_Node]:
    """The nodes of filters that the one with these levels covers, its own among them."""
    nodes = [root]
    for depth, level in enumerate(levels):
        if level == "#":
            for node in nodes:
                yield from _subtree(node)
            return
        nodes = [child for node in nodes for child in _matched_children(node, level, depth == 0)]
    yield from nodes


def _matched_children(node: _Node, level: str, is_first: bool) -> Iterator[_Node]:
    """The children whose level a filter with this level covers. `is_first`: it is the first level of the filters."""
    if level != "+":
        if (child := node.children.get(level)) is not None:
            yield child
        return
    for name, child in node.children.items():
        if name != "#" and not (is_first and name.startswith("$")):
            yield child


def _overlapping_nodes(root: _Node, levels: tuple[str, ...]) -> Iterator[_Node]:
    nodes = [root]
    for depth, level in enumerate(levels):
        if level == "#":
            for node in nodes:
                yield from _subtree(node)
            return
        following = list[_Node]()
        for node in nodes:
            if (rest := node.children.get("#")) is not None:
                yield rest
            following += _matched_children(node, level, depth == 0)
            if level != "+" and (depth or not level.startswith("$")) and (child := node.children.get("+")) is not None:
                following.append(child)
        nodes = following
    for node in nodes:
        yield node
        if (rest := node.children.get("#")) is not None:
            yield rest


def _subtree(node: _Node) -> Iterator[_Node]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(found.children.values())
