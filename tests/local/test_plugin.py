"""The pytest plugin, in pytest processes of its own: what it gives, what it tells, and that nothing is left running."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.grounds import journal
from tests.broker.running import until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "test_stock_pair.py"
WAIT_S = 120
GIVEN = ("-p", "orchestrator.pytest_plugin")


class Inner:
    """A pytest in a folder of its own. All that its brokers get, and their journals, lies below that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "runtime"
        self._process: subprocess.Popen[str] | None = None

    def start(self, text: str, *options: str, path: Path = ROOT) -> subprocess.Popen[str]:
        (self.folder / "test_inner.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--basetemp", "base"]
        surroundings = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)]),
        }
        surroundings.pop("PYTEST_ADDOPTS", None)
        self._process = subprocess.Popen(
            [*command, *options, "test_inner.py"], cwd=self.folder, env=surroundings, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return self._process

    def run(self, text: str, *options: str, path: Path = ROOT) -> tuple[int, str]:
        """Exit code and output."""
        process = self.start(text, *options, path=path)
        output, _ = process.communicate(timeout=WAIT_S)
        return process.returncode, output

    def left(self) -> list[str]:
        """Commands that run and were told of this folder."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(str(self.folder / "base").encode()) for word in words):
                found.append(words[words.index(b"--name") + 1].decode() if b"--name" in words else str(words))
        return sorted(found)

    def journals(self) -> list[Path]:
        return list(self.runtime.rglob("*.journal*"))

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[Inner]:
    made = Inner(tmp_path)
    yield made
    made.end()


FAILS = """
import os

def test_passes(broker_network):
    one = broker_network({"root": None, "a": "root"}, routing="simple", durability="memory")
    two = broker_network(topology={"tree": "star", "brokers": 3})
    assert len({*map(one.address, one.names), *map(two.address, two.names)}) == 5

def test_fails(broker_network):
    one = broker_network({"root": None, "a": "root"})
    two = broker_network({"alone": None})
    one.pause("a")
    two.crash("alone")
    for file in (two.folder / "alone").glob("store*"):
        file.write_bytes(b"damaged" * 1000)
    two.restart("alone")
    two.crash("alone")
    assert one.address("a") == "nothing"

def test_misspells(broker_network):
    broker_network({"root": None, "a": "rot"})
"""


def test_failed_test_shows_faults_and_last_words_and_nothing_is_left(inner: Inner) -> None:
    code, output = inner.run(FAILS, *GIVEN)
    assert code == 1
    assert "1 passed" in output
    assert "2 failed" in output
    assert "error" not in output.splitlines()[-1]
    done = r" +[\d.]+ s  "
    for number, lines in {
        1: [r"root 127\.0\.0\.1:\d+ serving", r"a 127\.0\.0\.1:\d+ paused", f"{done}start", f"{done}pause a"],
        2: [r"alone 127\.0\.0\.1:\d+ crashed", f"{done}start", f"{done}crash alone", f"{done}restart alone", f"{done}crash alone",
            "alone: the store is damaged .*"],
    }.items():  # fmt: skip
        section = rf"^-+ broker network {number} -+\n" + "\n".join(lines) + "\n[-=_]"
        assert re.search(section, output, re.MULTILINE), output
    assert "topology.parents.a: the parent rot is no broker of this tree" in output
    assert "pytest_plugin.py" not in output, "the tester's own line is shown, not ours"
    assert inner.left() == []
    assert inner.journals() == []


WAITS = """
import threading
from pathlib import Path

def test_waits(broker_network):
    network = broker_network({"root": None, "a": "root", "b": "root"})
    network.pause("a")
    Path("ready").touch()
    threading.Event().wait()
"""
STARTS = """
def test_starts(broker_network):
    broker_network(topology={"tree": "regular", "arity": 2, "depth": 4})
"""


def test_interrupt_ends_all_brokers(inner: Inner) -> None:
    process = inner.start(WAITS, *GIVEN)
    until((inner.folder / "ready").exists, "the network")
    assert inner.left() == ["a", "b", "root"]
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2, output
    assert "KeyboardInterrupt" in output
    assert inner.left() == []
    assert inner.journals() == []


def test_interrupt_while_brokers_start_ends_all_of_them(inner: Inner) -> None:
    process = inner.start(STARTS, *GIVEN)
    until(lambda: bool(inner.left()), "the first broker")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2, output
    assert inner.left() == []
    assert inner.journals() == []


def test_killed_pytest_leaves_only_what_is_stopped_and_that_is_cleaned(
    inner: Inner, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = inner.start(WAITS, *GIVEN)
    until((inner.folder / "ready").exists, "the network")
    process.kill()
    process.communicate()
    until(lambda: inner.left() == ["a"], "the end of those that can")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(inner.runtime))
    assert [it.split("(")[1] for it in journal.clean()] == ["broker a)"]
    until(lambda: inner.left() == [], "the end of the last")


LIGHT = """
import sys

HEAVY = {"numpy", "pydantic", "uvloop", "yaml", "mqtt5", "asyncio"}
BEFORE = HEAVY & set(sys.modules)

def test_nothing_is_imported_before_the_fixture_is_used(request):
    assert request.config.pluginmanager.has_plugin("brokerbed")
    assert BEFORE == set()

def test_network(broker_network):
    broker_network({"alone": None}).wait_until_calm()
"""


@pytest.mark.parametrize("options", [(), GIVEN])
def test_entry_point_loads_it_and_it_may_be_asked_for_besides(inner: Inner, options: tuple[str, ...]) -> None:
    """As it is installed: the entry points of pyproject.toml, in metadata of a distribution of their own."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["pytest11"]
    metadata = inner.folder / "site" / "brokerbed_plugin-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: brokerbed-plugin\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in told.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    text = (
        LIGHT.replace('has_plugin("brokerbed")', 'has_plugin("orchestrator.pytest_plugin")')
        if options == GIVEN
        else LIGHT
    )
    (inner.folder / "conftest.py").write_text('pytest_plugins = ["orchestrator.pytest_plugin"]\n')
    code, output = inner.run(text, *options, path=metadata.parent)
    assert code == 0, output
    assert "2 passed" in output


def test_example_of_the_document_passes_and_is_the_one_in_the_document(inner: Inner) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert f"```python\n{text}```" in (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    code, output = inner.run(text, *GIVEN)
    assert code == 0, output
    assert re.search(r"2 (passed|skipped)", output)
    assert inner.left() == []


def test_document_names_every_verb_and_setting() -> None:
    from orchestrator.grounds.described import SETTINGS
    from orchestrator.grounds.testing import BrokerNetwork

    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    verbs = [name for name in vars(BrokerNetwork) if not name.startswith("_") and name not in ("start", "close")]
    assert len(verbs) > 10
    assert [name for name in verbs if f"`{name}(" not in text] == []
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []
