"""A YAML file as a tree of values that remember their lines.

Scalars follow YAML 1.2's core schema, so `on` and `off` are words and not booleans. The tree is built from the
parser's events without recursion, under limits on size, depth and (expanded) values: no file can hang or crash it.
It knows YAML and nothing of scenarios.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from brokerbed.scenario.errors import Problem, ScenarioError

FILE_BYTES_MAX = 8 * 2**20  # an explicit tree of 100 000 brokers takes 2 MiB
NESTING_MAX = 32  # the deepest key of the format is five levels down
VALUES_MAX = 2_000_000  # with aliases expanded; eight times that explicit tree
SHOWN_CHARACTERS_MAX = 60  # of an offending value in an error message

Scalar = str | int | float | bool | None
Plain = Scalar | list["Plain"] | dict[str, "Plain"]

_INTEGER = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the line it stands on (in a mapping: the line of its key)."""

    value: "Scalar | list[Node] | dict[str, Node]"
    line: int

    def plain(self) -> Plain:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def find(self, path: Sequence[str | int]) -> "Node | None":
        """The node at `path`, or None if there is none."""
        at: Node | None = self
        for step in path:
            at = at.child(step) if at else None
        return at

    def child(self, step: str | int) -> "Node | None":
        if isinstance(self.value, dict):
            return self.value.get(str(step))
        if isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            return self.value[step]
        return None


def shown(value: object) -> str:
    """A value as an error message shows it: on one line and not too long."""
    text = " ".join(str(value).split()) if isinstance(value, str) else repr(value)
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def read_document(path: Path, added: str = "") -> Node:
    """The root mapping of the file, or a ScenarioError that says what is wrong with it as YAML.

    `added` are lines that the command line adds at the end.
    """
    file = str(path)
    text = _read_text(path, file) + added
    try:
        root = _Composer(file).compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _fail(file, mark.line + 1 if mark else 1, f"this is not valid YAML: {shown(error.problem or error.context)}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        _fail(file, line, "this is not valid YAML: it holds a control character")
    if root is None or root.value is None:
        _fail(file, 1, "the file is empty; `brokerbed scenarios --copy quickstart` gives one to start from")
    if not isinstance(root.value, dict):
        _fail(file, root.line, "a scenario is a mapping that begins with `scenario: 1`")
    return root


def _read_text(path: Path, file: str) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        _fail(file, None, "there is no such file; `brokerbed scenarios` lists the shipped ones")
    except IsADirectoryError:
        _fail(file, None, "this is a folder; name the scenario file in it")
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        _fail(file, None, f"it cannot be read ({getattr(error, 'strerror', None) or error})")
    if len(content) > FILE_BYTES_MAX:
        _fail(file, None, f"the file is larger than {FILE_BYTES_MAX // 2**20} MiB; this is no scenario")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _fail(file, line, "this is not UTF-8 text; a scenario is a YAML file")


def _fail(file: str, line: int | None, message: str, key: str = "") -> NoReturn:
    raise ScenarioError(file, [Problem(line, key, message)])


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been seen yet."""

    node: Node
    anchor: str | None
    values_before: int
    height: int = 1  # levels it holds so far, itself included
    key: tuple[str, int] | None = None  # in a mapping: the key whose value comes next, and its line


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    values: int
    height: int


class _Composer:
    """Turns parser events into one Node, keeping the open collections on a stack of its own."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._values = 0
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}

    def compose(self, text: str) -> Node | None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is many times faster, where it is there
        root: Node | None = None
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                _fail(self._file, line, "a second YAML document begins here; a file holds one scenario")
            if isinstance(event, yaml.CollectionEndEvent):
                self._close()
            elif isinstance(event, yaml.NodeEvent):
                node = self._place(event, self._node(event, line))
                root = root or node
                if isinstance(event, yaml.CollectionStartEvent):
                    self._stack.append(_Open(node, event.anchor, self._values))
        return root

    def _close(self) -> None:
        done = self._stack.pop()
        if done.anchor:
            self._anchors[done.anchor] = _Anchored(done.node, self._values - done.values_before, done.height)
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, done.height + 1)

    def _place(self, event: yaml.NodeEvent, node: Node) -> Node:
        """Put the node into the innermost open collection; in a mapping nodes are by turns key and value."""
        if not self._stack:
            return node
        parent = self._stack[-1]
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
            return node
        assert isinstance(parent.node.value, dict)
        if parent.key is None:
            if not isinstance(event, yaml.ScalarEvent):
                _fail(self._file, node.line, "a key must be a plain word")
            if event.value in parent.node.value:
                _fail(self._file, node.line, "this key was given before in the same mapping", shown(event.value))
            parent.key = (event.value, node.line)
            return node
        (key, line), parent.key = parent.key, None
        parent.node.value[key] = Node(node.value, line)
        return parent.node.value[key]

    def _node(self, event: yaml.NodeEvent, line: int) -> Node:
        self._values += 1
        height = 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                _fail(self._file, line, f"*{shown(event.anchor)} refers to no complete value above it")
            anchored = self._anchors[event.anchor]
            self._values += anchored.values
            height = anchored.height
            node = Node(anchored.node.value, line)
            if self._stack:
                self._stack[-1].height = max(self._stack[-1].height, height + 1)
        elif isinstance(event, yaml.ScalarEvent):
            self._reject_tag(event.tag, line)
            node = Node(event.value if event.style else _scalar(event.value), line)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(node, 1, 1)
        else:
            assert isinstance(event, yaml.CollectionStartEvent)
            self._reject_tag(event.tag, line)
            node = Node([] if isinstance(event, yaml.SequenceStartEvent) else {}, line)
        if len(self._stack) + height > NESTING_MAX:
            _fail(self._file, line, f"values are nested more than {NESTING_MAX} deep here")
        if self._values > VALUES_MAX:
            _fail(self._file, line, f"the file expands to more than {VALUES_MAX} values here")
        return node

    def _reject_tag(self, tag: str | None, line: int) -> None:
        if tag is not None:
            _fail(self._file, line, f"YAML tags like {shown(tag)} are not used in scenarios")


def _scalar(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
