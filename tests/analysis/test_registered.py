"""docs/extend.md: a routing algorithm, its model and a metric from somebody else's packages."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.metrics import registry as metric_registry
from brokerbed.analysis.models import registry as model_registry
from brokerbed.analysis.report import write as write_report
from brokerbed.broker.routing.registry import ALGORITHMS
from tests import extension_page
from tests.analysis.commands import PAIR, Commands
from tests.report.made import SMALL_SWEEP, made

ROUTING, MODELS, METRICS = "brokerbed.routing", "brokerbed.models", "brokerbed.metrics"
Install = Callable[..., None]


def forget_other_packages() -> None:
    for registry in (ALGORITHMS, model_registry.MODELS, metric_registry.DEFINITIONS):
        registry.forget_other_packages()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts the modules of the page on the path, as pip would, with the entry points of these groups."""

    def installed(*groups: str) -> None:
        monkeypatch.syspath_prepend(str(extension_page.install(tmp_path / "site", *groups)))
        for module in extension_page.MODULES:
            monkeypatch.delitem(sys.modules, module, raising=False)
        forget_other_packages()

    yield installed
    forget_other_packages()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "acme.yaml"
    file.write_text(PAIR + "routing: acme\n", encoding="utf-8")
    return file


def test_algorithm_and_metric_of_other_packages_are_run_and_judged(
    install: Install, scenario: Path, command: Commands, tmp_path: Path
) -> None:
    """With 30 publications per second, half at each of two brokers, b0 receives all 30: b1 passes on everything."""
    install(ROUTING, MODELS, METRICS)
    done = command("run", scenario, "--on", "virtual", "--out", tmp_path / "runs", "--json")
    assert done.code == 0, done.errors
    assert {row["verdict"] for row in done.json["metrics"] if not row["labels"]} == {"agrees"}
    assert all(it["holds"] for it in done.json["invariants"])
    incoming = {row["labels"].get("broker"): row for row in done.json["metrics"] if row["metric"] == "rate.incoming"}
    assert incoming.keys() == {None, "b0", "b1"}
    assert incoming["b0"]["predicted"] == pytest.approx(30)
    assert incoming["b0"]["measured"] == pytest.approx(30, rel=0.1)
    assert incoming["b0"]["verdict"] == "agrees"
    stationary = {it["at"] for it in done.json["assumptions"] if it["name"] == "stationary"}
    assert {"rate.total", "rate.incoming"} <= stationary
    page = (tmp_path / "runs" / "latest" / "report.html").read_text(encoding="utf-8")
    assert "<caption>Incoming notifications, 1/s" in page
    compared = command("compare", tmp_path / "runs/latest", tmp_path / "runs/latest", "--json").json["metrics"]
    assert "rate.incoming" in {row["metric"] for row in compared}


def test_rows_of_a_metric_stand_beside_those_of_the_same_place(install: Install, command: Commands) -> None:
    install(METRICS)
    rows = command("predict", "quickstart", "--json").json["metrics"]
    named = [(row["metric"], *row["labels"].values()) for row in rows]
    assert named.index(("rate.incoming",)) == named.index(("rate.total",)) + 1
    assert named.index(("rate.incoming", "b3")) == named.index(("rate.received", "b3")) + 1


def test_metric_of_another_package_is_drawn_until_it_is_uninstalled(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(METRICS)
    folder = made(tmp_path / "sweep", SMALL_SWEEP)
    page = write_report(folder).read_text(encoding="utf-8")
    assert "<b>Incoming notifications</b>" in page
    assert "incoming notifications, 1/s" in page
    monkeypatch.setattr(metric_registry.DEFINITIONS, "all", metric_registry.DEFINITIONS.built_in)
    with pytest.raises(RunError, match="analyse again"):
        write_report(folder)


def test_without_a_model_nothing_is_predicted_and_that_is_said(
    install: Install, scenario: Path, command: Commands
) -> None:
    install(ROUTING, METRICS)
    done = command("predict", scenario, "--json")
    assert done.code == 0
    assert {row["predicted"] for row in done.json["metrics"]} == {None}
    assert "rate.incoming" in {row["metric"] for row in done.json["metrics"]}
    assert "there is no model of acme routing" in done.errors


def test_name_that_nobody_registered_is_a_mistake_in_the_scenario(scenario: Path, command: Commands) -> None:
    done = command("predict", scenario)
    assert done.code == 2
    assert (
        "routing: must be flooding, simple, identity, covering, merging, peer, advertisement or peer-advertisement, not acme"
        in done.errors
    )


def test_broker_takes_it_from_its_command_line(install: Install) -> None:
    install(ROUTING)
    assert list(ALGORITHMS.all) == [*ALGORITHMS.built_in, "acme"]
    assert ALGORITHMS["acme"].summary == "Announces each filter to the parent once."


def test_containers_have_no_algorithms_of_other_packages(
    install: Install, scenario: Path, command: Commands, tmp_path: Path
) -> None:
    """Which is said before an engine is asked."""
    install(ROUTING, MODELS)
    done = command("run", scenario, "--on", "docker", "--out", tmp_path / "runs", "--no-analyse")
    assert (done.code, done.errors.count("\n")) == (1, 1)
    assert "acme is another package's" in done.errors
