"""The pytest plugin, in pytest processes of its own: what it gives, what it tells, and that nothing is left running."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from brokerbed.orchestrator.grounds import journal
from tests.broker.running import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
WAIT_S = 120
GIVEN = ("-p", "brokerbed.pytest_plugin")
HAS_PYTEST_ASYNCIO = importlib.util.find_spec("pytest_asyncio") is not None


class Inner:
    """A pytest in a folder of its own. All that its brokers get, and their journals, lies below that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "runtime"
        self._process: subprocess.Popen[str] | None = None

    def start(self, text: str, *options: str, path: Path = ROOT) -> subprocess.Popen[str]:
        (self.folder / "test_inner.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--basetemp", "base"]
        if HAS_PYTEST_ASYNCIO and "no:asyncio" not in options:
            command += ["-o", "asyncio_default_fixture_loop_scope=function"]  # it warns as long as this is not set
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


FAULT_LINE = r" +[\d.]+ s  "
SECTIONS = {
    1: [r"root 127\.0\.0\.1:\d+ serving", r"a 127\.0\.0\.1:\d+ paused", f"{FAULT_LINE}start", f"{FAULT_LINE}pause a"],
    2: [r"alone 127\.0\.0\.1:\d+ crashed", f"{FAULT_LINE}start", f"{FAULT_LINE}crash alone", f"{FAULT_LINE}restart alone",
        f"{FAULT_LINE}crash alone", "alone: the store is damaged .*", "alone: .*store.sqlite.count is damaged.*"],
}  # fmt: skip


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Inner, int, str]:
    """A pytest with failing tests that is over, its exit code and its output."""
    made = Inner(tmp_path_factory.mktemp("failed"))
    try:
        return made, *made.run(FAILS, *GIVEN, "--junitxml", "junit.xml")
    finally:
        made.end()


def test_failed_test_shows_faults_and_last_words_and_nothing_is_left(failed: tuple[Inner, int, str]) -> None:
    inner, code, output = failed
    assert code == 1
    assert "1 passed" in output
    assert "2 failed" in output
    assert "error" not in output.splitlines()[-1]
    for number, lines in SECTIONS.items():
        section = rf"^-+ broker network {number} -+\n" + "\n".join(lines) + "\n[-=_]"
        assert re.search(section, output, re.MULTILINE), output
    assert "topology.parents.a: the parent rot is no broker of this tree" in output
    assert "pytest_plugin.py" not in output, "the tester's own line is shown, not ours"
    assert inner.left() == []
    assert inner.journals() == []


def test_junit_file_of_a_failed_test_has_states_and_history_of_its_networks(failed: tuple[Inner, int, str]) -> None:
    cases = {it.get("name"): it for it in ET.parse(failed[0].folder / "junit.xml").iter("testcase")}
    (failure,) = cases["test_fails"].iter("failure")
    for number, lines in SECTIONS.items():
        section = rf"^-+ broker network {number} -+\n" + "\n".join(lines) + "$"
        assert re.search(section, failure.text or "", re.MULTILINE), failure.text
    assert list(cases["test_passes"]) == []


SHARED = """
import os
import signal
import time

import pytest

@pytest.fixture(scope="session")
def network(session_broker_network):
    return session_broker_network({"alone": None})

def test_one_crashes(network):
    network.crash("alone")
    network.heal()

def test_other_has_the_same_network(network):
    assert [what for _, what in network.history] == ["start", "crash alone", "restart alone"]
    assert network.state("alone") == "serving"

def test_fails(network):
    assert False

def test_fails_without_it():
    assert False

def test_broker_dies(network):
    os.kill(network._network.hosts["alone"].pid, signal.SIGKILL)
    while network.state("alone") != "dead":
        time.sleep(0.01)

def test_does_not_need_it():
    pass
"""


def test_session_has_one_network_that_failed_tests_show_and_whose_death_is_told_at_once(inner: Inner) -> None:
    code, output = inner.run(SHARED, *GIVEN, "--junitxml", "junit.xml")
    assert code == 1, output
    assert "2 failed, 4 passed, 1 error" in output
    cases = {it.get("name"): it for it in ET.parse(inner.folder / "junit.xml").iter("testcase")}
    texts = {name: "".join(it.text or "" for it in case) for name, case in cases.items()}
    assert re.search(r"broker network 1 -+\nalone 127\.0\.0\.1:\d+ serving\n", texts["test_fails"])
    assert "broker network" not in texts["test_fails_without_it"]
    assert "broker alone died (killed by SIGKILL)" in texts["test_broker_dies"]
    assert inner.left() == []
    assert inner.journals() == []


DIES = """
import os
import signal
import time

import pytest

def test_broker_dies_by_itself(broker_network):
    network = broker_network({"alone": None})
    os.kill(network._network.hosts["alone"].pid, signal.SIGKILL)
    while network.state("alone") != "dead":
        time.sleep(0.01)

def test_network_cannot_start(broker_network, monkeypatch):
    monkeypatch.setattr("brokerbed.orchestrator.grounds.testing.prepare", fails)
    broker_network({"alone": None})

def test_network_that_cannot_start_is_expected(broker_network, monkeypatch):
    monkeypatch.setattr("brokerbed.orchestrator.grounds.testing.prepare", fails)
    with pytest.raises(OSError):
        broker_network({"alone": None})

def test_network_is_closed_by_the_test(broker_network):
    broker_network({"alone": None}).close()

def test_broker_cannot_start(broker_network, monkeypatch):
    monkeypatch.setattr("brokerbed.orchestrator.grounds.local.CONFIG", "missing")
    broker_network({"alone": None})

def test_report_itself_fails(broker_network):
    network = broker_network({"alone": None})
    network.told = fails
    assert False

def test_next_one_is_run():
    pass

def fails(*_, **__):
    raise OSError("no room at all")
"""


def test_session_goes_on_when_brokers_die_or_networks_do_not_start(inner: Inner) -> None:
    code, output = inner.run(DIES, *GIVEN)
    assert "INTERNALERROR" not in output, output
    assert code == 1, output
    assert re.search(r"3 failed, 4 passed, 1 error", output), output
    assert "broker alone died (killed by SIGKILL)" in output
    assert re.search(r"^alone 127\.0\.0\.1:\d+ dead$", output, re.MULTILINE), "what it was like before it was ended"
    assert "the network was not started" in output
    assert "the state of this network cannot be told (OSError: no room at all)" in output
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
        LIGHT.replace('has_plugin("brokerbed")', 'has_plugin("brokerbed.pytest_plugin")') if options == GIVEN else LIGHT
    )
    (inner.folder / "conftest.py").write_text('pytest_plugins = ["brokerbed.pytest_plugin"]\n')
    code, output = inner.run(text, "-p", "no:asyncio", *options, path=metadata.parent)  # which imports asyncio itself
    assert code == 0, output
    assert "2 passed" in output


RUNS_COROUTINES = """
import asyncio
import inspect

import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: a coroutine")

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        asyncio.run(pyfuncitem.obj(**arguments))
        return True
"""


@pytest.mark.parametrize(
    ("example", "tests"),
    [pytest.param("test_stock_pair.py", 2, marks=pytest.mark.needs("mosquitto_pub")), ("test_async_pair.py", 1)],
)
def test_example_of_the_document_passes_and_is_the_one_in_the_document(inner: Inner, example: str, tests: int) -> None:
    text = (EXAMPLES / example).read_text(encoding="utf-8")
    assert f"```python\n{text}```" in (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    if not HAS_PYTEST_ASYNCIO:  # the networks do not care who runs a coroutine
        (inner.folder / "conftest.py").write_text(RUNS_COROUTINES)
    code, output = inner.run(text, *GIVEN)
    assert code == 0, output
    assert f"{tests} passed" in output
    assert inner.left() == []


def verbs_of(network: type) -> set[str]:
    return {name for name, it in vars(network).items() if not name.startswith("_") and callable(it)}


def test_document_names_every_fixture_verb_and_setting() -> None:
    from brokerbed.orchestrator.grounds.async_testing import AsyncBrokerNetwork
    from brokerbed.orchestrator.grounds.network_scenario import SETTINGS
    from brokerbed.orchestrator.grounds.testing import BrokerNetwork

    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    verbs = verbs_of(BrokerNetwork) | verbs_of(AsyncBrokerNetwork)
    assert len(verbs) > 10
    assert [name for name in verbs - {"start", "close"} if f"`{name}(" not in text] == []
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []
    assert [
        name for name in ("broker_network", "session_broker_network", "async_broker_network") if f"`{name}`" not in text
    ] == []


def test_coroutines_have_every_verb_of_the_plain_network() -> None:
    from brokerbed.orchestrator.grounds.async_testing import AsyncBrokerNetwork
    from brokerbed.orchestrator.grounds.testing import BrokerNetwork

    assert verbs_of(AsyncBrokerNetwork) - {"client"} == verbs_of(BrokerNetwork)
