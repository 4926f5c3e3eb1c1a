"""Every PromQL expression that is shipped, with the place it stands in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
VARIABLE_QUERY = "label_values("


def dashboards() -> dict[str, dict[str, Any]]:
    files = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def of_dashboards() -> Iterator[tuple[str, str]]:
    """Those of panels, and the series that variables are filled from."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"]
        for variable in dashboard["templating"]["list"]:
            assert variable["query"].startswith(VARIABLE_QUERY)
            yield f"{name}: variable {variable['name']}", variable["query"].removeprefix(VARIABLE_QUERY).rsplit(",")[0]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def alerts() -> set[str]:
    return {rule["alert"] for rule in rules() if "alert" in rule}
