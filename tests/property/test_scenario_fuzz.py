"""No file whatever makes the loader do anything but load it or raise its one error, with a line and a message."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerbed import cli, shipped
from brokerbed.analysis.predict import predict
from brokerbed.scenario import ScenarioError, load

COMPLETE = """
scenario: 1
name: t8-10k
seed: 7
clock: {warmup: 120s, measure: 600s, speedup: 20}
topology: {tree: levels, brokers: 15, width: 4}
routing: identity
refresh: 30s
classes: 10
subscriptions:
  mean_active: 10000
  lifetime: {mean: 60s, law: exponential}
  at: [{broker: b3, class: 7, arrival_rate: 0.2/s, lifetime: {mean: 30s, law: lognormal, cv: 2}}]
publications: {rate: 1000/s, at: [{broker: b5, class: 7, rate: 3/s}], qos: 1}
service: {broker_in: {mean: 62.5ms}, link: {mean: 62.5ms}}
publishers:
  - {id: p4, broker: b3, topic: metro/4, rate: 1/s, on: {mean: 109s}, off: {mean: 121.5s}, service: {mean: 62.5ms}}
subscribers:
  - {id: s1, broker: b9, topic: metro/4, on: {mean: 146.3s}, off: {mean: 96s}, session_service: {mean: 62.5ms}}
copies: 20
faults:
  - {at: 120s, crash: b3, for: 20s}
  - {at: 250s, cut: [b1, b3], way: b1>b3, for: 30s}
  - {at: 300s, disconnect: s1, for: 10s}
  - {every: {mean: 60s}, pause: any, for: {mean: 5s}}
sweep: {subscriptions.mean_active: [10, 100], publishers.p4.rate: [1/s, 3/s]}
payload: 64
limits: {messages: 100000, bytes: 64MB, policy: drop-oldest}
durability: process
links: [{between: [b1, b3], delay: {mean: 20ms, law: deterministic}, bandwidth: 64kbit/s}]
tolerance: 2%
"""
DOCUMENT: dict[str, Any] = yaml.load(COMPLETE, Loader=yaml.BaseLoader)  # BaseLoader: words stay words, `on` too
WHERE = re.compile(r"^.+?:[0-9]+: .+$")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.yaml"


def paths(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from paths(child, (*at, key))


def replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


def check(file: Path) -> None:
    """Loads and predicts, or is refused in due form; anything else fails the test."""
    try:
        experiment = load(file)
    except ScenarioError as error:
        for line in str(error).splitlines():
            assert WHERE.match(line) or " more problem" in line, line
        return
    for point in experiment.points[:2]:
        json.dumps(predict(point).as_json(detail=True), allow_nan=False)


def test_the_complete_example_is_valid(file: Path) -> None:
    file.write_text(COMPLETE)
    assert len(load(file).points) == 4


SCALARS = st.one_of(
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(["-1/s", "0s", "1e400s", "b99", "any", "null", "class/0003", "#", "+/x", "9" * 5000, "1s", "5/min",
                     "lognormal", "deterministic", "b0", "s1", "1e-300s", "99999999999999999999h", "100%"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@settings(max_examples=400)
@given(path=st.sampled_from(sorted(paths(DOCUMENT), key=str)), value=VALUES)
def test_any_value_anywhere(file: Path, path: tuple[Any, ...], value: Any) -> None:
    file.write_text(yaml.safe_dump(replaced(DOCUMENT, path, value), allow_unicode=True), encoding="utf-8")
    check(file)


@settings(max_examples=300)
@given(st.data())
def test_cut_swapped_and_scribbled_text(file: Path, data: st.DataObject) -> None:
    text = COMPLETE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 40)))
        text = (
            text[:start]
            + data.draw(st.text(alphabet="{}[]:,-&*!|>'\"%@`#? \n\tab1s/.~\x00é", max_size=6))
            + text[stop:]
        )
    file.write_text(text, encoding="utf-8")
    check(file)


@settings(max_examples=200)
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbfscenario: 1")
@example(b"\xff\xfes\x00")
@example(b"? \n")
@example(b"a: |\n  b\n - c")
def test_any_bytes(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    check(file)


@settings(max_examples=100)
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_arguments(arguments: list[str]) -> None:
    """Whatever is typed, the command line answers with one of its exit codes."""
    if "--copy" in " ".join(arguments):
        return
    assert cli.dispatch(["predict", *arguments]) in (0, 2)


@pytest.mark.parametrize("name", shipped.shipped())
def test_shipped_scenarios_with_a_line_missing(name: str, file: Path) -> None:
    lines = shipped.shipped()[name].read_text(encoding="utf-8").splitlines(keepends=True)
    wanted = [number for number, line in enumerate(lines) if not line.startswith("#")]
    for number in wanted[:: max(1, len(wanted) // 12)]:
        file.write_text("".join(lines[:number] + lines[number + 1 :]), encoding="utf-8")
        check(file)
