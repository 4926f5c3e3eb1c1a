"""What Prometheus sees of a running experiment: its brokers, and the predictions of the models.

Predictions are served on loopback while the run lasts. Rates are per wall second, as Prometheus measures them: those of
the model times clock.speedup. Delays are not among them, as nothing that Prometheus can see measures them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from brokerbed.metrics import Expectation
from brokerbed.orchestrator import targets
from brokerbed.orchestrator.grounds.base import Announce, Played
from brokerbed.scenario import Scenario
from brokerbed.scenario.units import NS_PER_S

LOOPBACK = "127.0.0.1"


@contextmanager
def observed(
    scenario: Scenario, expected: Expectation | None, ground: str, root: Path, folder: Path, played: Played
) -> Iterator[Announce]:
    """While this context is open, Prometheus can observe the run in `folder`, below the run directory `root`."""
    targets.clean()
    registry = CollectorRegistry()
    registry.register(RunCollector(scenario, expected, played))
    server, thread = start_http_server(0, LOOPBACK, registry)
    run = "/".join([root.absolute().name, *folder.relative_to(root).parts])
    labels = {"run": run, "scenario": scenario.name, "ground": ground}
    announced = targets.Targets(folder, labels, (LOOPBACK, server.server_port))
    try:
        yield announced.write
    finally:
        announced.remove()
        server.shutdown()
        server.server_close()
        thread.join()


class RunCollector(Collector):
    def __init__(self, scenario: Scenario, expected: Expectation | None, played: Played) -> None:
        self._clock = scenario.clock
        self._played = played
        self._predicted = (
            [] if expected is None else [*predicted(expected, scenario.clock.speedup)]
        )  # constant during the run

    def collect(self) -> Iterator[Metric]:
        speedup, warmup, measure = self._clock.speedup, self._clock.warmup, self._clock.measure
        start_ns = self._played.start_ns
        model_ns = 0.0 if start_ns is None else max(0.0, (time.time_ns() - start_ns) * speedup)
        is_measured = warmup <= model_ns <= warmup + measure and start_ns is not None
        measured_s = (model_ns - warmup) / speedup / NS_PER_S if is_measured else 0.0
        for metric, text, value in (
            ("brokerbed_run_speedup", "model seconds per wall second", speedup),
            ("brokerbed_run_model_seconds", "model time since its beginning", model_ns / NS_PER_S),
            ("brokerbed_run_measured_seconds", "wall time since the measured time began, while it lasts", measured_s),
        ):
            yield GaugeMetricFamily(metric, text, value=value)
        yield from self._predicted


def predicted(expected: Expectation, speedup: float) -> Iterator[Metric]:
    """The predicted rows as metrics; rows without a value are left out."""
    rates = GaugeMetricFamily(
        "brokerbed_predicted_messages_per_second", "over links, in wall time", labels=["metric", "link"]
    )
    entries = GaugeMetricFamily("brokerbed_predicted_entries", "of routing tables", labels=["metric", "broker"])
    for row in expected.rows:
        if row.predicted is None:
            continue
        if row.metric.startswith("rate."):
            rates.add_metric([row.metric, row.labels.get("link", "")], row.predicted * speedup)
        elif row.metric.startswith("table."):
            entries.add_metric([row.metric, row.labels.get("broker", "")], row.predicted)
    waiting = GaugeMetricFamily("brokerbed_predicted_queue_messages", "waiting for clients", labels=["broker"])
    for broker, value in expected.waiting_messages().items():
        waiting.add_metric([broker], value)
    yield from (rates, entries, waiting)
