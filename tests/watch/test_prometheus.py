"""A run in which much goes wrong, watched by a real Prometheus: every panel has data, every alert fires."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.orchestrator.targets import FOLDER_VARIABLE
from brokerbed.scenario import load
from tests.local.commands import run
from tests.watch.expressions import alerts, of_dashboards, recorded
from tests.watch.prometheus import POLL_S, Prometheus, prometheus, wait_for

pytestmark = pytest.mark.needs("prometheus")

SPEEDUP = 2
SCENARIO = f"""\
scenario: 1
name: watched
clock: {{warmup: 10s, measure: 600s, speedup: {SPEEDUP}}}
topology: {{tree: star, brokers: 3}}
classes: 4
subscriptions: {{mean_active: 12, lifetime: {{mean: 10s}}}}
publications: {{rate: 20/s}}
publishers: [{{id: p, broker: b1, topic: t, rate: 5/s}}]
subscribers:
  - {{id: s, broker: b2, topic: t, on: {{mean: 4s}}, off: {{mean: 2s}}}}
  - {{id: away, broker: b1, topic: t, on: {{mean: 1s}}, off: {{mean: 1h, law: deterministic}}}}
limits: {{messages: 40, bytes: 1MB, policy: drop-oldest}}
faults:
  - {{at: 84s, pause: b1, for: 18s}}
  - {{at: 110s, cut: [b0, b2], for: 50s}}
  - {{at: 164s, crash: b1, for: 400s}}
"""
WHY = {  # what makes an alert fire, in the order of the faults
    "BrokerLate": "b1 is stopped for 9 s of wall time, which in 30 s is 9 s / 210 samples = 43 ms",
    "LinkDown": "the link of b2 is cut for 25 s",
    "QueueFilling": "40 messages wait for a client that stays away",
    "MessagesLost": "and the oldest are dropped",
    "BrokerDown": "b1 is stopped, and later killed",
    "DivergesFromPrediction": "and what it sends is missing",
}
FIRE_S_MAX = 120.0
ONE_BROKER = "b0"
MAY_BE_EMPTY: dict[str, str] = {}  # where a panel stands, and why it has nothing to show


@dataclass(frozen=True)
class Watched:
    prometheus: Prometheus
    run: str
    compared_s: float  # a moment at which measured and predicted values can be compared


def firing(prometheus: Prometheus) -> set[str]:
    """Alerts that have fired at any time."""
    found = prometheus.query('last_over_time(ALERTS{alertstate="firing"}[10m])')
    return {it["metric"]["alertname"] for it in found}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    place = tmp_path_factory.mktemp("watched")
    with prometheus(place / "prometheus") as scraping, pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(scraping.targets))
        with run(place / "run", SCENARIO) as command:
            wait_for(lambda: bool(scraping.query("brokerbed_run_speedup")), "the run being scraped", 60)
            name = scraping.query("brokerbed_run_speedup")[0]["metric"]["run"]
            wait_for(
                lambda: bool(scraping.query("run:brokerbed_messages:deviation_ratio")), "30 s of measured time", 90
            )
            compared_s = time.time()
            end_s = time.monotonic() + FIRE_S_MAX
            while (left := alerts() - firing(scraping)) and command.process.poll() is None:
                assert time.monotonic() < end_s, {it: WHY[it] for it in left}
                time.sleep(POLL_S)
            assert command.process.poll() is None, command.end()
            yield Watched(scraping, name, compared_s)


def test_every_panel_and_variable_has_data(watched: Watched) -> None:
    empty = []
    for where, expression in of_dashboards():
        asked = expression.replace("$__rate_interval", "10s").replace("$run", watched.run)
        asked = asked.replace("$broker", ONE_BROKER)
        assert "$" not in asked, expression
        if not watched.prometheus.query(asked, time=watched.compared_s) and where not in MAY_BE_EMPTY:
            empty.append((where, asked))
    assert empty == []


def test_every_recorded_series_has_data(watched: Watched) -> None:
    names = recorded()
    assert len(names) >= 6
    for name in names:
        assert watched.prometheus.query(name, time=watched.compared_s), name


def test_every_alert_was_pending_and_fired(watched: Watched) -> None:
    assert WHY.keys() == alerts()
    pending = watched.prometheus.query('last_over_time(ALERTS{alertstate="pending"}[10m])')
    assert {it["metric"]["alertname"] for it in pending} == alerts()
    assert firing(watched.prometheus) == alerts()


def test_alert_of_a_cut_link_names_its_ends(watched: Watched) -> None:
    """And is gone, as the link was repaired."""
    query = 'last_over_time(ALERTS{alertname="LinkDown", alertstate="firing"}[10m])'
    found = {(it["metric"]["broker"], it["metric"]["peer"]) for it in watched.prometheus.query(query)}
    assert {("b2", "b0"), ("b0", "b2")} <= found
    assert all(it["metric"]["run"] == watched.run for it in watched.prometheus.query(query))
    assert watched.prometheus.query('ALERTS{alertname="LinkDown", broker="b2"}') == []


def test_predictions_are_those_of_the_model_per_wall_second(watched: Watched, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    rows = {it.metric: it.predicted for it in predict(load(file).points[0]).rows if not it.labels}
    for metric in ("rate.notifications", "rate.control", "rate.total"):
        query = f'brokerbed_predicted_messages_per_second{{metric="{metric}", link=""}}'
        predicted = rows[metric]
        assert predicted is not None
        assert watched.prometheus.value(query, time=watched.compared_s) == pytest.approx(predicted * SPEEDUP)
    query = 'brokerbed_predicted_entries{metric="table.remote_entries", broker=""}'
    assert watched.prometheus.value(query, time=watched.compared_s) == pytest.approx(rows["table.remote_entries"])


def test_measured_rates_are_near_their_predictions_before_the_first_fault(watched: Watched) -> None:
    """Within a quarter: in a run of 180 s without faults windows of 30 s were between 7% below and 5% above the prediction,
    the whole of it 2% below. A speed-up of 2 that was forgotten, or taken twice, is far outside."""
    model_s = watched.prometheus.value("brokerbed_run_model_seconds", time=watched.compared_s)
    assert model_s is not None
    assert model_s < 84
    labels = '{metric="rate.notifications", link=""}'
    predicted = watched.prometheus.value(f"brokerbed_predicted_messages_per_second{labels}", time=watched.compared_s)
    measured = watched.prometheus.value(f"run:brokerbed_messages:rate30s{labels}", time=watched.compared_s)
    assert predicted is not None
    assert measured is not None
    assert measured == pytest.approx(predicted, rel=0.25)


def test_run_directory_lists_what_is_scraped(watched: Watched) -> None:
    labels = [it["labels"] for it in watched.prometheus.active()]
    assert {it.get("broker") for it in labels} == {"b0", "b1", "b2", None}
    assert {(it["run"], it["scenario"], it["ground"]) for it in labels} == {(watched.run, "watched", "local")}
    assert re.fullmatch(r"watched-local-1-\d{8}T\d{6}", watched.run)
