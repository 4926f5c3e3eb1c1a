"""The documents tell the truth: every key, option and metric is explained, links lead somewhere, pieces of scenarios are right."""

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

from brokerbed import shipped
from brokerbed.analysis.metrics.registry import DEFINITIONS
from brokerbed.analysis.predict import predict
from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.runtime.metrics import BrokerCollector
from brokerbed.broker.runtime.settings import KEYS, LIMITS, parser
from brokerbed.orchestrator.grounds.base import Played
from brokerbed.orchestrator.observe import RunCollector
from brokerbed.reference import reference
from brokerbed.scenario import format as written
from brokerbed.scenario import load
from brokerbed.scenario.part import Part
from tests.conftest import MINIMAL, FromText

ROOT = Path(__file__).parents[2]
PACKAGES = ("brokerbed", "broker", "clients", "orchestrator", "analysis")
PAPERS = (
    "# Mühl et al. 2009, ",
    "# Bouloukakis et al. 2017, ",
    "# Bricconi et al. 2000, ",
    "# Van Vliet 2007, ",
    "# Migliavacca, Cugola 2007, ",
)


def test_every_key_of_the_format_is_documented() -> None:
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    parts = [part for part in _kinds_of(Part) if part.__module__.startswith("brokerbed.scenario.")]
    keys = {
        field.alias or name for part in (*parts, written.fault_model()) for name, field in part.model_fields.items()
    }
    assert len(keys) > 40
    assert [key for key in sorted(keys) if not re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`", text)] == []


def _kinds_of(part: type[Part]) -> Iterator[type[Part]]:
    for kind in part.__subclasses__():
        yield kind
        yield from _kinds_of(kind)


def test_reference_of_commands_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference(), "python -m brokerbed.reference"


def test_links_between_documents_lead_somewhere() -> None:
    """And every page can be found from the index."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    found = [
        (page, (page.parent / link).resolve())
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text(encoding="utf-8"))
    ]
    assert [f"{page.name}: {link}" for page, link in found if not link.exists()] == []
    index = {link for page, link in found if page.name == "index.md"}
    assert [it.name for it in (ROOT / "docs").glob("*.md") if it.name != "index.md" and it not in index] == []


def test_table_of_the_cheapest_algorithms_is_what_is_predicted() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    head = re.search(r"^\| scenario \| at \|(.*)\|$", text, re.MULTILINE)
    assert head is not None
    algorithms = [cell.strip() for cell in head[1].split("|")]
    lines = re.findall(r"^\| `(algorithms/\w+)` \|([^|]*)\|(.*)\|$", text, re.MULTILINE)
    assert {name for name, _, _ in lines} == {name for name in shipped.shipped() if name.startswith("algorithms/")}
    for name, at, cells in lines:
        key, _, value = at.strip(" `").partition(": ")
        totals = {
            point.routing: next(row.predicted for row in predict(point).rows if row.metric == "rate.total")
            for point in load(shipped.find(name)).points
            if not key or str(point.at[key]) == value
        }
        cheapest = min(totals, key=lambda routing: totals[routing] or 0.0)
        found = dict(zip(algorithms, (cell.strip() for cell in cells.split("|")), strict=True))
        shown = {routing: f"{total:.4g}" for routing, total in totals.items()}
        assert found == dict.fromkeys(algorithms, "") | shown | {cheapest: f"**{shown[cheapest]}**"}, (name, at)


PIECES = {
    "scenario": "1",
    "name": "piece",
    "clock": "{measure: 600s}",
    "topology": "{tree: explicit, parents: {cloud: null, line1: cloud, office: cloud, plant: cloud}}",
    "publishers": "[{id: sensor, broker: line1, topic: t, rate: 1/s}]",
    "subscribers": "[{id: phone, broker: office, topic: t}]",
    "classes": "2",
    "publications": "{rate: 1/s}",
}


def test_scenarios_in_the_documents_are_right(tmp_path: Path) -> None:
    """Each piece of YAML, with what it leaves out."""
    checked = 0
    for page in (ROOT / "docs" / "tutorial.md", *(ROOT / "docs").glob("howto-*.md")):
        blocks = re.findall(r"^ *```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for text in map(textwrap.dedent, blocks):
            given = re.findall(r"^(\w+):", text, re.MULTILINE)
            is_whole = "scenario" in given
            rest = [f"{key}: {value}\n" for key, value in PIECES.items() if key not in given and not is_whole]
            (tmp_path / "piece.yaml").write_text("".join(rest) + text)
            load(tmp_path / "piece.yaml")
            checked += 1
    assert checked == 8


def test_readme_has_the_summary_of_every_metric() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What the rows mean")[2]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", text.partition("\n## ")[0], re.MULTILINE))
    assert rows == {definition.metric.name: definition.metric.summary for definition in DEFINITIONS.built_in.values()}


def test_architecture_names_every_folder_of_packages() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for package in PACKAGES:
        for file in (ROOT / package).rglob("__init__.py"):
            folder = f"{file.parent.relative_to(ROOT)}/"
            assert folder.removeprefix("brokerbed/") in text, f"{folder} is missing"


def test_documents_name_only_files_that_exist() -> None:
    named = 0
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "deploy" / "README.md"):
        if page.name == "CHANGELOG.md":  # which tells of the past
            continue
        text = page.read_text(encoding="utf-8")
        for path in re.findall(rf"`((?:{'|'.join(PACKAGES)}|deploy|docs|scenarios|tests|bench)/[\w/.-]*)`", text):
            in_a_run = path.startswith("analysis/") and path.endswith((".parquet", ".csv", ".json"))
            assert in_a_run or (ROOT / path).exists(), f"{page.name} names {path}"
            named += 1
    assert named > 30


def test_every_dependency_is_pinned_and_no_address_stands_in_the_pins() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    assert "://" not in pins
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in pins.splitlines() if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += [name for name in extra if not name.startswith("brokerbed[")]
    wanted += project["build-system"]["requires"]
    assert [name for name in wanted if re.split("[<>=]", name)[0] not in pinned] == []


def test_shipped_scenarios_open_with_what_they_reproduce() -> None:
    for file in (ROOT / "scenarios").glob("*20*/*.yaml"):  # the folders of papers
        comment = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        text = " ".join(line.removeprefix("#").strip() for line in comment)
        assert comment[0].startswith(PAPERS), file
        assert re.search(r"The paper reports|paper, analytic|The thesis", text), file


def test_broker_document_names_every_option_and_limit() -> None:
    text = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8")
    options = [option for action in parser()._actions for option in action.option_strings if option.startswith("--")]
    for name in (*options, *LIMITS, *KEYS):
        assert name in text or name == "--help", name


def test_table_of_metrics_is_complete_with_their_labels(from_text: FromText) -> None:
    scenario = from_text(MINIMAL + "topology: {tree: line, brokers: 2}\n").points[0]
    collectors = (BrokerCollector(Broker(BrokerConfig())), RunCollector(scenario, predict(scenario), Played()))
    given = {
        f"{family.name}{'_total' * (family.type == 'counter')}": list(getattr(family, "_labelnames", ()))
        for collector in collectors
        for family in collector.collect()
    }
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(brokerbed_[a-z_]+)` \| ?([a-z, ]*?) ?\| \S", text, re.MULTILINE)
    assert {name: re.findall("[a-z]+", labels) for name, labels in rows} == given
    assert len(rows) == len(given) > 25
    assert not [it for labels in given.values() for it in labels if it in ("client", "client_id", "session")]
