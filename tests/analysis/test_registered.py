"""docs/extend.md: a routing algorithm and its model from somebody else's package, which a scenario just names."""

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerbed.broker.routing import registry
from tests.analysis.commands import PAIR, Commands

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
(PACKAGE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(DECLARED,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
ROUTING, MODELS = (
    f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
    for group, entries in tomllib.loads(DECLARED)["project"]["entry-points"].items()
)
Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts the package on the path, as pip would, with these entry points."""

    def installed(entry_points: str) -> None:
        site = tmp_path / "site"
        described = site / "acme_routing-1.0.dist-info"
        described.mkdir(parents=True)
        (site / "acme_routing.py").write_text(PACKAGE, encoding="utf-8")
        (described / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: acme-routing\nVersion: 1.0\n", encoding="utf-8"
        )
        (described / "entry_points.txt").write_text(entry_points, encoding="utf-8")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setattr(registry, "_loaded", {})
        monkeypatch.delitem(sys.modules, "acme_routing", raising=False)

    return installed


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "acme.yaml"
    file.write_text(PAIR + "routing: acme\n", encoding="utf-8")
    return file


def test_algorithm_of_another_package_is_run_and_judged(
    install: Install, scenario: Path, command: Commands, tmp_path: Path
) -> None:
    install(ROUTING + MODELS)
    done = command("run", scenario, "--on", "virtual", "--out", tmp_path / "runs", "--json")
    assert done.code == 0, done.errors
    assert {row["verdict"] for row in done.json["metrics"] if not row["labels"]} == {"agrees"}
    assert all(it["holds"] for it in done.json["invariants"])


def test_without_a_model_nothing_is_predicted_and_that_is_said(
    install: Install, scenario: Path, command: Commands
) -> None:
    install(ROUTING)
    done = command("predict", scenario, "--json")
    assert done.code == 0
    assert {row["predicted"] for row in done.json["metrics"]} == {None}
    assert "there is no model of acme routing" in done.errors


def test_name_that_nobody_registered_is_a_mistake_in_the_scenario(scenario: Path, command: Commands) -> None:
    done = command("predict", scenario)
    assert done.code == 2
    assert "routing: must be flooding, simple or identity, not acme" in done.errors


def test_broker_takes_it_from_its_command_line(install: Install) -> None:
    install(ROUTING)
    assert registry.names() == ["flooding", "simple", "identity", "acme"]
    assert registry.algorithm("acme").summary == "Tells the parent of each filter once."


def test_containers_have_no_algorithms_of_other_packages(
    install: Install, scenario: Path, command: Commands, tmp_path: Path
) -> None:
    """Which is said before an engine is asked."""
    install(ROUTING + MODELS)
    done = command("run", scenario, "--on", "docker", "--out", tmp_path / "runs", "--no-analyse")
    assert (done.code, done.errors.count("\n")) == (1, 1)
    assert "acme is another package's" in done.errors
