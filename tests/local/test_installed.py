"""The wheel as users install it: one import name, beside packages of their own, with and without its extras."""

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from brokerbed import extras

ROOT = Path(__file__).parents[2]
BUILD_S_MAX, COMMAND_S_MAX = 120, 120
SCENARIO = """\
scenario: 1
name: two
clock: {warmup: 1s, measure: 20s, speedup: 20}
topology: {tree: line, brokers: 2}
publishers: [{id: p, broker: b1, topic: t, rate: 5/s}]
subscribers: [{id: s, broker: b0, topic: t}]
"""
# Runs as the interpreter starts. It takes the clone away, which the environment of the tests has on its path, and hides packages.
CUSTOM = """\
import sys
from importlib.machinery import PathFinder

class Hiding:
    def find_spec(self, name, *arguments):
        return None if name.partition(".")[0] in {packages!r} else PathFinder.find_spec(name, *arguments)

    def __getattr__(self, name):
        return getattr(PathFinder, name)

sys.path[:] = [place for place in sys.path if place != {root!r}]
sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding()
"""
USERS_TEST = """\
import analysis, clients
import pytest

def test_users_network(broker_network):
    assert (analysis.WHOSE, clients.WHOSE) == ("the user's", "the user's")
    network = broker_network({"root": None, "leaf": "root"})
    network.crash("leaf")
    network.restart("leaf")
    network.wait_until_calm()
    with pytest.raises(ModuleNotFoundError):
        import broker
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=BUILD_S_MAX)
    (made,) = folder.glob("*.whl")
    return made


class Installed:
    """The unpacked wheel on the path of an interpreter whose current folder is the user's."""

    def __init__(self, folder: Path, wheel: Path, packages: Sequence[str] = ()) -> None:
        self.folder = folder
        site = folder / "site"
        with zipfile.ZipFile(wheel) as content:
            content.extractall(site)
        code = CUSTOM.format(root=str(ROOT), packages=packages)
        (site / "sitecustomize.py").write_text(code, encoding="utf-8")
        (folder / "two.yaml").write_text(SCENARIO, encoding="utf-8")
        self._environment = {**os.environ, "PYTHONPATH": str(site), "XDG_RUNTIME_DIR": str(folder / "runtime")}
        self._environment.pop("PYTEST_ADDOPTS", None)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=self._environment, text=True, capture_output=True,
            timeout=COMMAND_S_MAX,
        )  # fmt: skip

    def brokerbed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "brokerbed.entry", *arguments)


@pytest.fixture
def installed(tmp_path: Path, wheel: Path) -> Installed:
    return Installed(tmp_path, wheel)


@pytest.fixture
def plain(tmp_path: Path, wheel: Path) -> Installed:
    """Without the packages of the extras."""
    return Installed(tmp_path, wheel, [package for packages in extras.PACKAGES.values() for package in packages])


def test_wheel_has_one_import_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = {name.split("/")[0] for name in content.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"brokerbed"}


def test_users_project_keeps_its_own_packages(installed: Installed) -> None:
    for name in ("clients", "analysis", "tests"):
        (installed.folder / name).mkdir()
        (installed.folder / name / "__init__.py").write_text('WHOSE = "the user\'s"\n', encoding="utf-8")
    (installed.folder / "tests" / "test_network.py").write_text(USERS_TEST, encoding="utf-8")
    done = installed.python("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", "--basetemp", "base", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "No module named 'broker'" in installed.python("-c", "import broker").stderr


def test_plain_install_predicts_and_runs(plain: Installed) -> None:
    for command in (
        ("predict", "two.yaml"),
        ("run", "two.yaml", "--on", "virtual", "--no-analyse"),
        ("run", "two.yaml", "--on", "local", "--no-analyse"),
        ("scenarios",),
        ("clean",),
    ):
        done = plain.brokerbed(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert list((plain.folder / "runs" / "latest" / "log").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("run", "two.yaml"), "analysis"),
        (("analyse", "runs/latest"), "analysis"),
        (("report", "runs/latest"), "analysis"),
        (("compare", "runs/latest", "runs/latest"), "analysis"),
        (("run", "two.yaml", "--on", "docker", "--no-analyse"), "docker"),
        (("clean", "--engine", "tcp://127.0.0.1:9"), "docker"),
    ],
)
def test_missing_extra_is_one_sentence(plain: Installed, command: Sequence[str], extra: str) -> None:
    done = plain.brokerbed(*command)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"not installed: pip install 'brokerbed[{extra}]'")
    assert not (plain.folder / "runs").exists()


def test_extras_are_known_by_their_packages() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, packages in extras.PACKAGES.items():
        assert sorted(Requirement(it).name for it in declared[extra]) == sorted(packages)
