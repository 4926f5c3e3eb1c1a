"""The installed command as users and programs meet it: output, exit codes, and the format of the contract."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from brokerbed import shipped
from tests.broker.running import WAIT_S, until

COMMAND = Path(sys.prefix) / "bin" / "brokerbed"
MEMORY_BYTES_MAX = 500_000_000  # "in under 500 MB"


def brokerbed(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd, env={**os.environ, **environment}
    )


def as_json(*arguments: str | Path) -> dict[str, Any]:
    done = brokerbed(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_version_and_help() -> None:
    assert brokerbed("--version").stdout == "brokerbed 0.1.0\n"
    overview = brokerbed()
    assert overview.returncode == 0
    assert "..." not in overview.stdout.partition("Commands:")[2], "a sentence is cut off"
    for command in ("predict", "scenarios", "broker", "doctor"):
        assert command in overview.stdout
        assert f"Example: brokerbed {command}" in brokerbed(command, "--help").stdout


def test_predict_json_contract() -> None:
    result = as_json("predict", "quickstart")
    assert result["scenario"] == "quickstart"
    always = ("metric", "labels", "unit", "predicted")
    assert {tuple(row) for row in result["metrics"]} == {always, (*always, "method", "standard_error")}
    headline = {row["metric"]: row["predicted"] for row in result["metrics"] if not row["labels"]}
    assert list(headline) == [
        "table.remote_entries", "table.local_entries", "rate.notifications", "rate.notifications.additional",
        "rate.control", "rate.total",
    ]  # fmt: skip
    assert headline["rate.total"] == pytest.approx(headline["rate.notifications"] + headline["rate.control"])
    labels = [row["labels"] for row in result["metrics"] if row["labels"]]
    assert {"publisher": "sensor", "subscriber": "phone"} in labels
    assert {"broker": "b6"} in labels
    assert {"link": "b6>b2"} in labels
    assert {"link": "b2>b6"} in labels
    assert {"stage": "session", "at": "phone"} in labels


TABLE_3 = [(116.893, 3, 1), (43.835, 3, 1), (479.4, 1, 60), (465.6, 1, 60), (2.429, 3, 1)]


def test_predict_table3_rows_to_the_digits_of_the_reference() -> None:
    points = as_json("predict", "bouloukakis2017/table3")["points"]
    delays = [row["predicted"] for point in points for row in point["metrics"] if row["metric"] == "delay.end_to_end"]
    assert [round(delay / unit, digits) for delay, (_, digits, unit) in zip(delays, TABLE_3, strict=True)] == [
        expected for expected, _, _ in TABLE_3
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fig7", {("20s", "0.05/s"): 10.38, ("20s", "1/s"): 13.67, ("20s", "2/s"): 20.5, ("20s", "3/s"): 41, ("20s", "3.5/s"): 82}),
        ("fig11", {("125ms", "1/s"): 48.21, ("125ms", "3/s"): 100.85, ("62.5ms", "7/s"): 138.35}),
        ("fig12", {("125ms", "1/s"): 28.16, ("125ms", "3/s"): 50.97}),
    ],
)  # fmt: skip
def test_predict_figures_of_bouloukakis(name: str, expected: dict[tuple[str, str], float]) -> None:
    found = {}
    for point in as_json("predict", f"bouloukakis2017/{name}")["points"]:
        (delay,) = (row["predicted"] for row in point["metrics"] if row["metric"] == "delay.end_to_end")
        found[next(iter(point["at"].values())), point["at"]["publishers.p1.rate"]] = round(delay, 2)
    assert {at: found[at] for at in expected} == expected


def test_predict_figure3_has_seven_trees_that_converge() -> None:
    points = as_json("predict", "muehl2009/fig3")["points"]
    assert len(points) == 140
    entries = {
        (point["at"]["topology.width"], point["at"]["subscriptions.mean_active"]): point["metrics"][0]["predicted"]
        for point in points
    }
    assert {width for width, _ in entries} == {1, 2, 4, 8, 16, 32, 64}
    assert round(entries[8, 10_000], 2) == 31701.72
    assert round(entries[64, 100], 2) == 501.00
    for width in (1, 2, 4, 8, 16, 32, 64):
        assert entries[width, 10] < 700
        assert 0.99 < entries[width, 700_000] / 126_000 < 1


def test_predict_1400_scenarios_in_one_sweep_within_memory(tmp_path: Path) -> None:
    """A small process starts it: the peak of a child is at least what its parent had when it was forked."""
    output = tmp_path / "out.json"
    peak_kb = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); \
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    command = [sys.executable, "-c", peak_kb, str(COMMAND), "predict", "muehl2009/running_example", "--json"]
    with output.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=True)
    assert len(json.loads(output.read_text())["points"]) == 1400
    assert int(done.stderr) * 1024 < MEMORY_BYTES_MAX


def test_predict_table_is_readable_and_unwrapped_off_a_terminal() -> None:
    done = brokerbed("predict", "bouloukakis2017/table3", COLUMNS="40")
    assert done.returncode == 0
    assert any("116.9" in line and "146.3s" in line for line in done.stdout.splitlines())
    detail = brokerbed("predict", "quickstart", "--detail").stdout
    assert "from sensor to phone" in detail
    assert "session phone" in detail


def test_predict_unstable_queue_is_named_with_its_utilisation(tmp_path: Path) -> None:
    file = tmp_path / "unstable.yaml"
    file.write_text(
        "scenario: 1\nname: x\nclock: {measure: 1s}\ntopology: {tree: line, brokers: 1}\n"
        "publishers: [{id: p, broker: b0, topic: t, rate: 5/s}]\n"
        "subscribers: [{id: s, broker: b0, topic: t, on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}}]\n"
    )
    done = brokerbed("predict", file, "--json")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "unstable: the session queue at s has utilisation 1.25, which must be below 1; what depends on it has no prediction"
    ]
    result = json.loads(done.stdout)
    assert result["unstable"] == [{"stage": "session", "at": "s", "utilisation": 1.25}]
    assert [row["predicted"] for row in result["metrics"] if row["metric"] == "delay.end_to_end"] == [None]


def bad_files(folder: Path) -> dict[str, Path]:
    draw = random.Random(1)
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    contents = {
        "empty": b"",
        "noise of 10 MB": draw.randbytes(10_000_000),
        "printable noise of 8 MB": bytes(draw.choices(range(32, 127), k=8_000_000)),
        "text of 8 MB": b"lorem ipsum\n" * 650_000,
        "alias bomb": bomb.encode(),
        "unknown key": b"scenario: 1\nnmae: x\n",
    }
    files = {}
    for number, (name, content) in enumerate(contents.items()):
        files[name] = folder / f"{number}.yaml"
        files[name].write_bytes(content)
    return {**files, "missing": folder / "missing.yaml", "a folder": folder}


def test_bad_input_is_exit_code_2_and_one_line(tmp_path: Path) -> None:
    for name, file in bad_files(tmp_path).items():
        done = brokerbed("predict", file, COLUMNS="20")
        assert (name, done.returncode) == (name, 2)
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith(f"{file}:")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["predikt"], ["predict"], ["predict", "quickstart", "--jsn"], ["predict", "a", "b"], ["scenarios", "--copy"]],
)
def test_bad_arguments_are_exit_code_2_and_one_line(arguments: list[str]) -> None:
    done = brokerbed(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "brokerbed --help" in done.stderr


def test_reader_that_stops_early_causes_no_traceback() -> None:
    done = subprocess.run(
        f"{COMMAND} predict muehl2009/fig7 --json | head -c 10", shell=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == '{"scenario'
    assert done.stderr == ""


def test_scenarios_one_line_each_and_all_predictable() -> None:
    done = brokerbed("scenarios")
    lines = done.stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names[0] == "quickstart"
    assert {"muehl2009/fig3", "muehl2009/fig4", "muehl2009/fig5", "muehl2009/fig6", "muehl2009/fig7"} < set(names)
    assert {f"bouloukakis2017/{name}" for name in ("table3", "fig7", "fig11", "fig12", "trace")} < set(names)
    assert all(len(line.split()) > 4 for line in lines)


def test_scenarios_copy_gives_a_file_to_start_from(tmp_path: Path) -> None:
    done = brokerbed("scenarios", "--copy", "bouloukakis2017/table3", cwd=tmp_path)
    assert done.stdout == "table3.yaml\n"
    assert brokerbed("predict", "table3.yaml", cwd=tmp_path).returncode == 0
    brokerbed("scenarios", "--copy", "bouloukakis2017/trace", cwd=tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["commute.csv", "table3.yaml", "trace.yaml"]
    again = brokerbed("scenarios", "--copy", "bouloukakis2017/table3", cwd=tmp_path)
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1)
    unknown = brokerbed("scenarios", "--copy", "quikstart", cwd=tmp_path)
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)
    assert "quickstart" in unknown.stderr


def test_scenarios_schema_accepts_what_is_shipped_and_refuses_typing_errors() -> None:
    schema = json.loads(brokerbed("scenarios", "--schema").stdout)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for file in shipped.shipped().values():
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=Yaml12Loader)
        validator.validate(document)
    publisher = {"id": "p", "broker": "b0", "topic": "t", "rate": "1/s", "expiry": "20s"}
    for form in ({"routing": {"algorithm": "merging", "threshold": 4}}, {"classes": {"count": 9, "groups": 3}},
                 {"publishers": [publisher]}, {"publishers": [publisher | {"expiry": {"mean": "20s"}}]}):  # fmt: skip
        validator.validate({**document, **form})
    mistakes: tuple[dict[str, object], ...] = (
        {"clases": 3}, {"routing": "covered"}, {"publications": {"rate": "3 per second"}}, {"classes": 0},
        {"routing": {"algorithm": "merging", "treshold": 4}}, {"routing": {"threshold": 4}}, {"classes": {"groups": 0}},
        {"routing": {"algorithm": "merging", "threshold": 1}}, {"subscriptions": {"where": []}},
        {"publishers": [publisher | {"expiry": "20 sec"}]},
    )  # fmt: skip
    for mistake in mistakes:
        assert not validator.is_valid({**document, **mistake}), mistake


class Yaml12Loader(yaml.SafeLoader):
    """`on` and `off` are words, as editors that follow YAML 1.2 read them."""


Yaml12Loader.yaml_implicit_resolvers = {
    letter: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def test_doctor_without_java_is_exit_code_3_with_advice(tmp_path: Path) -> None:
    done = brokerbed("doctor", JAVA_HOME="", PATH=str(tmp_path))
    assert done.returncode == 3
    (line,) = (line for line in done.stdout.splitlines() if " Java " in line)
    assert "MISSING" in line
    assert "openjdk-17-jre-headless" in line


def test_doctor_with_java_of_java_home(tmp_path: Path) -> None:
    for version, code in (("17.0.15", 0), ("21", 0), ("1.8.0_202", 3), ("11.0.2", 3)):
        program = tmp_path / version / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026' >&2\n")
        program.chmod(0o755)
        done = brokerbed("doctor", JAVA_HOME=str(tmp_path / version), PATH=str(tmp_path))
        assert (version, done.returncode) == (version, code)


@pytest.mark.parametrize("command", ["predict", "run", "broker"])
def test_interrupt_while_libraries_are_read_is_exit_code_130_and_silent(tmp_path: Path, command: str) -> None:
    """In the worst place: as a library runs code that it has made as text, which CPython takes for uncaught."""
    waiting = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(60)"
    library = {"broker": "uvloop"}.get(command, "typer")
    (tmp_path / f"{library}.py").write_text(f"exec({waiting!r})\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "brokerbed.entry", command, "quickstart"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    until((tmp_path / "begun").exists, "the library's being read")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, output, errors) == (130, "", "")
