"""Estimates how long runs will take and how much they will log, and announces long runs before they begin.

The figures are rough. They count the rows of the message log, which follow from the rates of the prediction, and take
what a row cost in measurements: quickstart (439 000 rows), 63 brokers with emulated service (313 000) and seven with
class subscriptions only (330 000), on the virtual ground with Python 3.11, took 14 to 22 us of CPU and 15 to 16 bytes.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from brokerbed.log.record import RECORD
from brokerbed.metrics import Expectation
from brokerbed.scenario import Scenario
from brokerbed.scenario.units import NS_PER_S, duration_text, size_text

LONG_S = 600.0  # a run that takes longer is announced
ROW_S = 20e-6  # of CPU on the virtual ground, from the event to Parquet
ROW_BYTES = 16  # in Parquet; while the run goes on it is a record of brokerbed/log/record.py
SAMPLES_MAX = 20  # points of a sweep whose rows are computed: a prediction of a large tree can take a second


Predict = Callable[[Scenario, bool], Expectation]  # with or without the rows per broker, link and stage


@dataclass(frozen=True, slots=True)
class Estimate:
    wall_s: float
    rows: float
    rows_at_once: float  # of runs that execute at the same time


def estimate(scenarios: Sequence[Scenario], is_virtual: bool, predict: Predict) -> Estimate:
    """The estimate for all these runs: one after the other in real time, or on all cores in virtual time."""
    sample = scenarios[:: -(-len(scenarios) // SAMPLES_MAX)]
    rows_of_sample = sum(rows_per_s(scenario, predict(scenario, False)) * model_s(scenario) for scenario in sample)
    rows = rows_of_sample * len(scenarios) / len(sample)
    at_once = min(len(scenarios), os.cpu_count() or 1) if is_virtual else 1
    real_s = sum(model_s(scenario) / scenario.clock.speedup for scenario in scenarios)
    wall_s = rows * ROW_S / at_once if is_virtual else real_s
    return Estimate(wall_s, rows, rows * at_once / len(scenarios))


def model_s(scenario: Scenario) -> float:
    return (scenario.clock.warmup + scenario.clock.measure) / NS_PER_S


def rows_per_s(scenario: Scenario, expected: Expectation) -> float:
    """Expected rows of the message log per second of model time, as if rates were spread evenly over the classes."""
    predicted = {row.metric: row.predicted for row in expected.rows if not row.labels}
    published_per_s = sum(scenario.publication_rates_per_s)
    by_peers_per_s = scenario.copies * sum(stream.rate for stream in scenario.streams)
    all_per_s = published_per_s + by_peers_per_s
    over_links_per_s = predicted["rate.notifications"]
    if over_links_per_s is None:  # a queue is unstable: no more than if everything went everywhere
        over_links_per_s = all_per_s * (len(scenario.tree) - 1)
    acknowledged = scenario.copies * sum(stream.rate for stream in scenario.streams if stream.qos)
    acknowledged += published_per_s if scenario.has_acknowledged_publications else 0.0
    service = scenario.service
    per_hop: float = 2 + (service.broker_in is not None) + (service.link is not None)  # sent, received, served, queued
    per_hop += acknowledged / all_per_s if all_per_s else 0
    arrivals_per_s, active = _subscriptions(scenario)
    delivered_per_s = scenario.publications.mean_rate_per_s(range(scenario.classes)) * active / scenario.classes
    for demand in scenario.demands():
        topics = len(demand.topics)
        delivered_per_s += topics * float(demand.publication_rate.sum() * demand.mean_active.sum())
        arrivals_per_s += topics * float(demand.arrival_rate.sum())
    to_peers_per_s = scenario.copies * sum(publisher.rate for publisher, _ in scenario.pairs())
    return (
        over_links_per_s * per_hop
        + (predicted["rate.control"] or 0.0) * 2  # sent, and entered in the table of the parent
        + published_per_s * (1 + (service.broker_in is not None))
        + by_peers_per_s * 5  # published, sent, received, identified, acknowledged
        + delivered_per_s
        + to_peers_per_s * 5  # queued, sent, received, processed, acknowledged
        + arrivals_per_s * 2  # each subscription also ends
    )


def _subscriptions(scenario: Scenario) -> tuple[float, float]:
    """The arrivals of subscriptions per second, and how many are active on average, times the classes they receive."""
    given = scenario.subscriptions
    spread = len(given.places) * scenario.classes - sum(broker in given.places for broker, _ in given.overrides)
    parts = [(1.0, 1.0, it) for it in given.overrides.values()]  # how many, and how many classes each receives
    parts += [(spread, 1.0, given.spread)] if given.spread is not None else []
    if given.wide is not None and scenario.groups is not None:
        parts.append((len(given.places) * scenario.groups, scenario.classes / scenario.groups, given.wide))
    stays = 1 / (1 - given.roam)  # the number of brokers at which a subscription arrives, one after the other
    stays *= given.mean_factor
    arrivals_per_s = stays * sum(count * it.arrival_rate_per_s for count, _, it in parts)
    active = stays * sum(count * classes * it.mean_active for count, classes, it in parts)
    if given.placement is not None:
        arrivals_per_s += scenario.classes * len(given.placement.brokers) * given.placement.arrival_rate_per_s
        active += scenario.classes * given.placement.count
    return arrivals_per_s, active


def announcement(expected: Estimate, folder: Path) -> str | None:
    """The announcement of long runs; None if the runs are short."""
    if expected.wall_s <= LONG_S:
        return None
    at_end, under_way = expected.rows * ROW_BYTES, expected.rows_at_once * RECORD.size
    return (
        f"this will take about {duration_text(expected.wall_s)} and write about {size_text(at_end)} of message log"
        f" (rough estimates; at most {size_text(at_end + under_way)} while it runs,"
        f" {size_text(shutil.disk_usage(folder).free)} are free); the analysis comes after that"
    )
