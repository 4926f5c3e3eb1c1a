"""The shipped dashboards: as the code writes them, and such that Grafana can show them."""

import re
from typing import Any

import pytest
import yaml

from brokerbed.analysis.predict import predict
from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.runtime.metrics import BrokerCollector
from brokerbed.orchestrator.grounds.base import Played
from brokerbed.orchestrator.observe import RunCollector
from deploy.dashboards import DASHBOARDS, FOLDER, json_of
from tests.conftest import MINIMAL, FromText
from tests.watch.expressions import DEPLOY, dashboards, of_dashboards, recorded, rules

NAMES = sorted(dashboards())
PROVISIONING = DEPLOY / "grafana" / "provisioning"


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    """Of Grafana's grid."""
    at = panel["gridPos"]
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def test_files_are_what_the_code_writes() -> None:
    """If not: python -m deploy.dashboards."""
    assert {it.name for it in FOLDER.iterdir()} == {f"{it.uid}.json" for it in DASHBOARDS}
    for dashboard in DASHBOARDS:
        assert (FOLDER / f"{dashboard.uid}.json").read_text(encoding="utf-8") == json_of(dashboard), dashboard.uid


@pytest.mark.parametrize("name", NAMES)
def test_panels_fill_rows_without_overlap(name: str) -> None:
    panels = dashboards()[name]["panels"]
    taken = [cell for panel in panels for cell in cells(panel)]
    assert len(taken) == len(set(taken))
    height = max(y for _, y in taken) + 1
    assert set(taken) == {(x, y) for x in range(24) for y in range(height)}
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_panels_say_what_they_show_and_ask_the_provisioned_source(name: str) -> None:
    sources = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text())["datasources"]
    source = {"type": sources[0]["type"], "uid": sources[0]["uid"]}
    dashboard = dashboards()[name]
    assert dashboard["uid"] == name
    assert {it["name"] for it in dashboard["templating"]["list"]} <= {"run", "broker"}
    for part in (*dashboard["panels"], *dashboard["templating"]["list"]):
        assert part["datasource"] == source
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        references = [it["refId"] for it in panel["targets"]]
        assert references == sorted(set(references))


def test_titles_are_told_apart() -> None:
    assert len({it["title"] for it in dashboards().values()}) == len(NAMES) == 4


def test_grafana_is_told_where_the_dashboards_are() -> None:
    provider = yaml.safe_load((PROVISIONING / "dashboards" / "brokerbed.yaml").read_text())["providers"][0]
    mounted = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounted


def test_one_panel_shows_both_theory_and_measured() -> None:
    panels = {it["title"]: it for it in dashboards()["brokerbed-theory"]["panels"]}
    for title in ("Notifications over all links", "Control messages over all links", "Remote entries", "Local entries"):
        measured, predicted = (it["expr"] for it in panels[title]["targets"])
        assert "brokerbed_predicted" in predicted
        assert measured.startswith("run:")


def known(from_text: FromText) -> set[str]:
    """The names of all metrics."""
    scenario = from_text(MINIMAL + "topology: {tree: line, brokers: 2}\n").points[0]
    collectors = (BrokerCollector(Broker(BrokerConfig())), RunCollector(scenario, predict(scenario), Played()))
    families = [family for collector in collectors for family in collector.collect()]
    return {f"{it.name}{'_total' * (it.type == 'counter')}" for it in families}


def test_expressions_name_only_metrics_that_there_are(from_text: FromText) -> None:
    names = known(from_text) | recorded()
    expressions = [it for _, it in of_dashboards()] + [rule["expr"] for rule in rules()]
    assert len(expressions) > 60
    used = {name for it in expressions for name in re.findall(r"[a-z:]*\bbrokerbed_[a-z0-9_:]+", it)}
    assert used - names == set()


def test_every_metric_is_shown_somewhere(from_text: FromText) -> None:
    shown = " ".join([it for _, it in of_dashboards()] + [rule["expr"] for rule in rules()])
    assert {name for name in known(from_text) if not re.search(rf"\b{name}\b", shown)} == set()
