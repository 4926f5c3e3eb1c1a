"""README, tutorial and how-tos are played from top to bottom, each in a folder of its own, and what they claim holds."""

import json
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from brokerbed.scenario import ScenarioError, load
from tests.integration.playing import BLOCK, PROGRAM, ROOT, Player
from tests.mqtt.servers import free_port
from tests.needs import path_of

pytestmark = pytest.mark.needs("java")
PAGES = ("README.md", "docs/tutorial.md", *sorted(f"docs/{it.name}" for it in (ROOT / "docs").glob("howto-*.md")))
Played = Callable[[str], Player]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A page after all its commands; it is played once."""
    found: dict[str, Player] = {}
    shared: dict[str, tuple[str, Path]] = {}

    def play(page: str) -> Player:
        if page not in found:
            found[page] = Player(tmp_path_factory.mktemp("page"), shared).play(page)
        return found[page]

    return play


def value(table: str, metric: str) -> float:
    """Predicted, of the whole network."""
    found = re.search(rf"^ +{re.escape(metric)} +all +([\d.]+)", table, re.MULTILINE)
    assert found, table
    return float(found[1])


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_runs_in_order(played: Played, page: str) -> None:
    """Commands that are shown outside such a block would not be."""
    its = played(page)
    assert its.outputs
    text = BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    fenced = "\n".join(re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE))
    others = re.findall(r"^.*\bbrokerbed \w.*$", fenced, re.MULTILINE)
    assert [it for it in others if " broker --port" not in it] == []  # which is played below
    if any(" run " in f" {command}" for command in its.outputs):
        assert (its.folder / "runs" / "latest" / "report.html").exists()


# -- the tutorial -----------------------------------------------------------------------------------------------------


def totals(table: str, column: int) -> dict[tuple[str, str], float]:
    """rate.total by algorithm and rate, from the table of a sweep's run."""
    rows = re.findall(r"^ +(\w+) +(\d+/s) +rate\.total +(\S+) +(\S+)", table, re.MULTILINE)
    return {(routing, rate): float((predicted, measured)[column]) for routing, rate, predicted, measured in rows}


def crossing_by_hand() -> float:
    """Seven brokers in a binary tree, 40 subscriptions to 20 classes, which live for 5 s.

    A broker has 40 / 140 of them for each class. Nobody at a leaf wants a class with probability exp(-2/7), nobody at the
    three brokers below one of the root's links with exp(-6/7). A subscription that comes or goes crosses a link if nobody
    else below it wants the class. A notification climbs to the root, and goes down each other link below which it is wanted.
    Flooding sends it over all six links.
    """
    leaf, inner = math.exp(-2 / 7), math.exp(-6 / 7)
    arrivals_per_s = 40 / 140 / 5 * 20  # at one broker
    control_per_s = 2 * arrivals_per_s * (4 * leaf + 2 * 3 * inner)
    up = 4 * 1 / 7 + 2 * 3 / 7
    down = 4 * 6 / 7 * (1 - leaf) + 2 * 4 / 7 * (1 - inner)
    return control_per_s / (6 - up - down)


def test_flooding_begins_to_cost_more_where_the_tutorial_says_and_within_its_sweep(played: Played) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    said = re.search(r"cross at ([\d.]+) publications per second", text)
    assert said
    assert float(said[1]) == pytest.approx(crossing_by_hand(), abs=0.005)
    table = played("docs/tutorial.md").outputs["run rates.yaml --on virtual"]
    for column in (0, 1):  # predicted and measured
        found = totals(table, column)
        assert len(found) == 6
        cheaper = {rate: found["flooding", rate] < found["identity", rate] for _, rate in found}
        assert cheaper == {"1/s": True, "3/s": True, "5/s": False}
    assert 3 < crossing_by_hand() < 5


def test_points_of_a_sweep_are_in_the_order_of_the_table(played: Played) -> None:
    points = played("docs/tutorial.md").folder / "runs" / "latest" / "points"
    at = [json.loads((points / str(it) / "run.json").read_text(encoding="utf-8"))["scenario"]["at"] for it in range(6)]
    assert [tuple(it.values()) for it in at] == [
        (routing, rate) for routing in ("flooding", "identity") for rate in ("1/s", "3/s", "5/s")
    ]


def test_message_of_the_tutorial_goes_from_the_sensor_over_the_root_to_the_phone(played: Played) -> None:
    trace = played("docs/tutorial.md").outputs["trace runs/latest sensor.0.17"]
    places = re.findall(r"\bb\d\b", trace)
    assert list(dict.fromkeys(places)) == ["b3", "b1", "b0", "b2", "b6"]
    assert "sensor.0" in trace
    assert "phone.0" in trace


def test_flooding_of_the_tutorial_costs_more_and_needs_no_tables(played: Played) -> None:
    outputs = played("docs/tutorial.md").outputs
    identity, flooding = outputs["predict quickstart"], outputs["predict quickstart.yaml"]
    assert value(flooding, "table.remote_entries") == value(flooding, "rate.control") == 0
    assert value(flooding, "rate.total") > value(identity, "rate.total")


def test_phone_of_the_tutorial_is_connected_a_third_of_the_time() -> None:
    phone = load(ROOT / "scenarios" / "quickstart.yaml").points[0].subscribers[0]
    assert phone.on is not None
    assert phone.off is not None
    assert phone.on.mean / (phone.on.mean + phone.off.mean) == pytest.approx(1 / 3)


# -- the how-tos ------------------------------------------------------------------------------------------------------


def test_invariants_that_the_how_to_names_hold_under_its_faults(played: Played) -> None:
    its = played("docs/howto-faults.md")
    (printed,) = its.outputs.values()
    text = (ROOT / "docs" / "howto-faults.md").read_text(encoding="utf-8")
    names = ["faults_took_effect", *re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*$", text, re.MULTILINE)))]
    assert len(names) == 7
    for name in names:
        assert re.search(rf"^ +{name} .*holds", printed, re.MULTILINE), name
    assert len(list((its.folder / "runs" / "latest" / "seeds").iterdir())) == 3


def test_ci_server_gets_test_cases(played: Played) -> None:
    cases = ElementTree.parse(played("docs/howto-ci.md").folder / "results.xml").getroot().findall(".//testcase")
    assert "no_acknowledged_message_lost" in {it.get("name") for it in cases}
    assert not [it for it in cases if it.find("failure") is not None]


# -- README -----------------------------------------------------------------------------------------------------------


def test_mistake_in_a_scenario_is_answered_as_readme_shows(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^mine\.yaml:.*$", text, re.MULTILINE)
    line = int(shown.split(":")[1])
    filler = "# a comment\n" * (line - 2)
    (tmp_path / "mine.yaml").write_text(f"scenario: 1\n{filler}subscriptions: {{lifetime: {{mean: 60 sec}}}}\n")
    with pytest.raises(ScenarioError) as told:
        load(tmp_path / "mine.yaml")
    assert shown in str(told.value).replace(f"{tmp_path}/", "")


@pytest.mark.needs("mosquitto_pub")
def test_broker_of_readme_serves_stock_clients(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^{PROGRAM} (broker .*)\nmosquitto_sub (.*) &\nmosquitto_pub (.*)$", text, re.MULTILINE)
    assert found
    port, other = str(free_port()), str(free_port())  # those of the page may be taken here
    options = found[1].replace("1883", port).replace("9100", other).replace("/tmp/broker", str(tmp_path))
    broker = subprocess.Popen([Path(sys.prefix) / "bin" / "brokerbed", *shlex.split(options)])
    listening = [path_of("mosquitto_sub"), "-p", port, "-C", "1", "-W", "60", *shlex.split(found[2])]
    sending = [path_of("mosquitto_pub"), "-p", port, *shlex.split(found[3])]
    try:
        with subprocess.Popen(
            ["sh", "-c", f"until {shlex.join(listening)}; do sleep .2; done"], stdout=subprocess.PIPE
        ) as heard:
            while heard.poll() is None:  # nothing tells when it has subscribed
                subprocess.run(sending, capture_output=True)
                time.sleep(0.2)
            assert heard.stdout is not None
            assert heard.stdout.read() == b"loud\n"
    finally:
        broker.terminate()
        broker.wait(60)
