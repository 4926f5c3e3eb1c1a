"""From a file on disk to an Experiment: read, apply the sweep, validate, resolve; or one ScenarioError."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NoReturn, get_origin

from pydantic import ValidationError

from brokerbed.scenario.document import NESTING_MAX, Node, Plain, read_document, shown
from brokerbed.scenario.errors import Problem, ScenarioError
from brokerbed.scenario.format import fault_model, scenario_model
from brokerbed.scenario.model import Experiment, Scenario
from brokerbed.scenario.resolve import resolve
from brokerbed.scenario.routing import routing_schema

SWEEP_POINTS_MAX = 20_000  # each is a run of its own
_VARYING = ("sweep", "pair")
NOT_SWEPT = ("scenario", "name", *_VARYING)  # what makes the points one experiment
PAIR_VALUES = 2
ENTRIES_SHOWN_MAX = 8  # of a list, in an error message

Assignment = dict[str, Node]  # dotted path -> value, for one point of a sweep


def load(path: Path, added: str = "") -> Experiment:
    """The experiment that the file describes, with lines `added` at its end. Raises ScenarioError, and nothing else, if
    it describes none."""
    file = str(path)
    document = read_document(path, added)
    assert isinstance(document.value, dict)
    sweep, pair = (node if (node := document.value.get(key)) and node.value is not None else None for key in _VARYING)
    base = _without_sweep(document)
    if pair is not None:
        _check_pair(file, pair, sweep)
        sweep = pair
    if sweep is None:
        scenario = _scenario(file, base, {})
        return Experiment(file, scenario.name, False, (scenario,))
    points = []
    for assignment in _assignments(file, sweep):
        at = {dotted: node.plain() for dotted, node in assignment.items()}
        points.append(_scenario(file, _assigned(file, base, assignment), at))
    if pair is not None and any(point.clock.until is not None or point.clock.finds_warmup for point in points):
        _fail(
            file,
            pair.line,
            "pair",
            "needs a fixed clock.warmup and clock.measure, so that variants measure the same time",
        )
    return Experiment(file, points[0].name, True, tuple(points), pair is not None, added)


def _without_sweep(document: Node) -> Node:
    assert isinstance(document.value, dict)
    return Node({key: node for key, node in document.value.items() if key not in _VARYING}, document.line)


def _check_pair(file: str, pair: Node, sweep: Node | None) -> None:
    if sweep is not None:
        _fail(file, pair.line, "pair", "pair and sweep do not go together; leave out one of them")
    values = list(pair.value.values()) if isinstance(pair.value, dict) else []
    if len(values) != 1 or not isinstance(values[0].value, list) or len(values[0].value) != PAIR_VALUES:
        _fail(file, pair.line, "pair", "must be one key with two values, like {routing: [identity, peer]}")
    if pair.child("seed") is not None:
        _fail(file, pair.line, "pair.seed", "cannot be paired, as both variants have the same random numbers")
    first, second = (node.plain() for node in values[0].value)
    if first == second:
        _fail(file, pair.line, "pair", f"the two values are the same, {shown(first)}")


def load_at(path: Path, points: Iterable[Mapping[str, str | float | None]]) -> list[Scenario]:
    """The file's scenario with these values by dotted keys instead of its sweep; ScenarioError as from `load`."""
    document = read_document(path)
    base = _without_sweep(document)
    scenarios = []
    for at in points:
        assignment = {dotted: Node(value, document.line) for dotted, value in at.items()}
        scenarios.append(_scenario(str(path), _assigned(str(path), base, assignment), at))
    return scenarios


def has_sweep(path: Path) -> bool:
    """Whether the file describes several scenarios; ScenarioError if it cannot be read."""
    sweep = read_document(path).child("sweep")
    return sweep is not None and sweep.value is not None


def schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, for editors."""
    document = scenario_model().model_json_schema(by_alias=True)
    document["properties"]["routing"] = routing_schema()
    point = {"type": "object", "minProperties": 1}
    document["properties"]["sweep"] = {
        "description": "dotted keys and the values they take: every combination, or a list of points",
        "anyOf": [
            {**point, "additionalProperties": {"type": "array", "minItems": 1}},
            {"type": "array", "minItems": 1, "items": point},
        ],
    }
    clock = document["$defs"]["Clock"]
    clock["required"] = [key for key in clock["required"] if key != "measure"]
    clock["oneOf"] = [{"required": ["measure"]}, {"required": ["until", "at_most"]}]
    document["properties"]["pair"] = {
        "description": "a dotted key and two values: both are run with the same random numbers and compared",
        "type": "object", "minProperties": 1, "maxProperties": 1,
        "additionalProperties": {"type": "array", "minItems": PAIR_VALUES, "maxItems": PAIR_VALUES},
    }  # fmt: skip
    fault, law = fault_model().model_json_schema(by_alias=True), document["$defs"]["Law"]
    document["$defs"]["Fault"] = {key: value for key, value in fault.items() if key != "$defs"}
    fixed_or_law = [{"$ref": "#/$defs/Law"}, law["properties"]["mean"]]  # a plain duration is fixed
    fault["properties"]["for"] = {"anyOf": fixed_or_law}
    document["title"] = "brokerbed scenario, version 1"
    return document


def _fail(file: str, line: int, key: str, message: str) -> NoReturn:
    raise ScenarioError(file, [Problem(line, key, message)])


def _assignments(file: str, sweep: Node) -> Iterator[Assignment]:
    """The points: every combination of a mapping's values, or the points of a list."""
    if isinstance(sweep.value, dict) and sweep.value:
        axes = []
        for dotted, values in sweep.value.items():
            if not isinstance(values.value, list) or not values.value:
                _fail(file, values.line, f"sweep.{shown(dotted)}", "must be a list of values, like [1, 8, 64]")
            axes.append(values.value)
        _check_size(file, sweep, prod(map(len, axes)))
        for combination in product(*axes):
            yield dict(zip(sweep.value, combination, strict=True))
    elif isinstance(sweep.value, list) and sweep.value:
        _check_size(file, sweep, len(sweep.value))
        for point in sweep.value:
            if not isinstance(point.value, dict) or not point.value:
                _fail(file, point.line, "sweep", "each point must be a mapping, like {publishers.p4.rate: 1/s}")
            yield point.value
    else:
        _fail(file, sweep.line, "sweep", "must map dotted keys to lists of values, or be a list of points")


def _check_size(file: str, sweep: Node, points: int) -> None:
    if points > SWEEP_POINTS_MAX:
        _fail(file, sweep.line, "sweep", f"has {points} points; at most {SWEEP_POINTS_MAX} are allowed")


def _assigned(file: str, base: Node, assignment: Assignment) -> Node:
    root = base
    for dotted, value in assignment.items():
        path = dotted.split(".")
        if path[0] in NOT_SWEPT or len(path) > NESTING_MAX:
            _fail(file, value.line, f"sweep.{shown(dotted)}", "this key cannot be swept")
        if len(path) > 1 and _is_list(path[0]) and base.child(path[0]) is None:
            _fail(file, value.line, f"sweep.{shown(dotted)}", f"there are no {path[0]} in this file")
        replaced = _replaced(root, path, value)
        if isinstance(replaced, str):
            _fail(file, value.line, f"sweep.{shown(dotted)}", replaced)
        root = replaced
    return root


def _is_list(key: str) -> bool:
    field = scenario_model().model_fields.get(key)
    return field is not None and get_origin(field.annotation) is tuple


def _replaced(node: Node | None, path: list[str], value: Node) -> Node | str:
    """`node` with the value at `path` replaced, or why there is no such place."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if node is None or node.value is None:
        node = Node({}, value.line)
    if isinstance(node.value, dict):
        inner = _replaced(node.value.get(step), rest, value)
        return inner if isinstance(inner, str) else Node({**node.value, step: inner}, node.line)
    if isinstance(node.value, list):
        for position, item in enumerate(node.value):
            named = isinstance(item.value, dict) and (name := item.value.get("id")) and str(name.value) == step
            if named or step == str(position):
                inner = _replaced(item, rest, value)
                if isinstance(inner, str):
                    return inner
                return Node([*node.value[:position], inner, *node.value[position + 1 :]], node.line)
        return f"there is no entry {shown(step)}; {_entries(node.value)}"
    return f"{shown(step)} stands below a plain value"


def _entries(nodes: list[Node]) -> str:
    """The entries of a list as a sweep calls them."""
    if not nodes:
        return "the list is empty"
    ids = [shown(name.plain()) for node in nodes if (name := node.child("id")) is not None]
    if len(ids) > ENTRIES_SHOWN_MAX:
        ids = [*ids[: ENTRIES_SHOWN_MAX - 1], "...", ids[-1]]
    positions = f"0 to {len(nodes) - 1}" if len(nodes) > 1 else "0"
    return f"there are {', '.join(ids)}, or by position {positions}" if ids else f"by position there are {positions}"


def _scenario(file: str, document: Node, at: Mapping[str, Plain]) -> Scenario:
    try:
        written = scenario_model().model_validate(document.plain())
    except ValidationError as error:
        raise ScenarioError(file, [_problem(document, details) for details in error.errors()]) from None
    problems: list[Problem] = []
    folder = Path(file).parent
    scenario = resolve(written, at, folder, lambda path, message: problems.append(_placed(document, path, message)))
    if scenario is None:
        raise ScenarioError(file, problems)
    return scenario


_REQUIRED = {  # top-level keys, as they can be written
    "scenario": "is required: say `scenario: 1`, the version of the format",
    "name": "is required, as in `name: my-experiment`",
    "clock": "is required, as in `clock: {warmup: 60s, measure: 600s}`",
    "topology": "is required, as in `topology: {tree: line, brokers: 5}`",
}
_MESSAGES = {
    "missing": "is required",
    "union_tag_not_found": "is required: levels, regular, line, star or explicit",
    "union_tag_invalid": "must be levels, regular, line, star or explicit",
    "int_type": "must be a whole number",
    "model_attributes_type": "must be a mapping like {tree: levels, brokers: 127, width: 8}",
    "tuple_type": "must be a list",
}


def _problem(document: Node, details: Any) -> Problem:
    """A pydantic error in the words and at the place of the file."""
    context = details.get("ctx", {})
    path: list[str | int] = list(details["loc"])
    if context.get("key") is not None:
        path.append(context["key"])
    elif details["type"].startswith("union_tag"):
        path.append("tree")
    message = _MESSAGES.get(details["type"]) or details["msg"].replace("Input should be", "must be")
    if details["type"] not in ("scenario", "quantity", "missing", "union_tag_not_found"):
        node = document.find(path)  # of a topology with a wrong `tree`, pydantic has the whole topology to show
        message = f"{message}, not {shown(node.plain() if node else details['input'])}"
    if details["type"] == "missing" and len(path) == 1:
        message = _REQUIRED.get(str(path[0]), message)
    return _placed(document, tuple(path), message)


def _placed(document: Node, path: tuple[str | int, ...], message: str) -> Problem:
    """The problem with the line of the deepest part of `path` that is in the file.

    Steps that the file does not have are names of our own (which kind of topology it is) and are left out, but for
    the last one: that is a key which is missing.
    """
    node, keys = document, []
    for position, step in enumerate(path):
        child = node.child(step)
        if child is not None or position == len(path) - 1:
            keys.append(str(step))
        node = child or node
    return Problem(node.line, shown(".".join(keys)), message)
