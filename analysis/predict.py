"""Predicts a scenario: the rows of all metrics, with their predicted values."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import numpy as np

from brokerbed.analysis.columns import class_columns, peer_columns
from brokerbed.analysis.delays import NAN, Queue, Way, predict_delays
from brokerbed.analysis.metrics.definition import Theory
from brokerbed.analysis.metrics.registry import definitions
from brokerbed.analysis.models.contract import Classes, Model, NotPredictedError, Traffic, no_traffic
from brokerbed.analysis.models.registry import MODELS
from brokerbed.metrics import PER_LINK, Labels, Row
from brokerbed.scenario import Experiment, Publisher, Scenario, Subscriber, matches
from brokerbed.scenario.units import NS_PER_S

TOPICS_LISTED_MAX = 3  # in a warning about unmatched topics; enough to notice a misspelling


@dataclass(frozen=True, slots=True)
class Prediction:
    scenario: Scenario
    rows: tuple[Row, ...]  # headline rows first
    ways: tuple[Way, ...]
    unstable: tuple[Queue, ...]
    notes: tuple[str, ...]

    def waiting_messages(self) -> dict[str, float]:
        """The mean number of messages that wait at a broker for its subscribers, by Little's law, over all copies.

        Brokers with a subscriber for which it is unknown are left out.
        """
        sessions = {queue.at: queue for way in self.ways for queue in way.queues if queue.stage == "session"}
        waiting: dict[str, float] = {}
        unknown = set[str]()
        for subscriber in self.scenario.subscribers:
            session = sessions.get(subscriber.id)
            if session is None or isnan(session.response_s):
                unknown.add(subscriber.broker)
                continue
            messages = session.rate_per_s * session.response_s * self.scenario.copies
            waiting[subscriber.broker] = waiting.get(subscriber.broker, 0.0) + messages
        return {broker: messages for broker, messages in waiting.items() if broker not in unknown}

    def as_json(self, detail: bool) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.seed,
            "model_seconds": self.scenario.clock.measure / NS_PER_S,
            "metrics": [
                {"metric": row.metric, "labels": row.labels, "unit": row.unit, "predicted": row.predicted}
                for row in self.rows
                if detail or row.is_headline
            ],
            "unstable": [
                {"stage": queue.stage, "at": queue.at, "utilisation": queue.utilisation} for queue in self.unstable
            ],
            "notes": list(self.notes),
        }


def predict(scenario: Scenario, detail: bool = True) -> Prediction:
    """The headline rows, and with `detail` also the rows per broker, link and queue."""
    model = MODELS.all.get(scenario.routing)
    if model is None or scenario.parts:
        return _unpredicted(scenario, f"{scenario.routing} routing" if model is None else next(iter(scenario.parts)))
    try:
        of_classes = _traffic(scenario, model, class_columns(scenario, model))
        of_one_copy = _traffic(scenario, model, peer_columns(scenario, model))
    except NotPredictedError as error:
        return _unpredicted(scenario, str(error))
    delays = predict_delays(scenario, of_classes, of_one_copy)
    traffic = of_classes + of_one_copy.times(scenario.copies)
    if not delays.throughput_is_known:
        traffic = _without_notifications(traffic)
    rows = _rows(Theory(scenario, traffic, delays.ways, delays.stages), detail)
    notes = (*delays.notes, *_unmatched_topics(scenario))
    return Prediction(scenario, rows, delays.ways, tuple(delays.unstable), notes)


def _unpredicted(scenario: Scenario, what: str) -> Prediction:
    """The headline rows without predicted values."""
    traffic = no_traffic(scenario.tree).times(NAN)
    ways = [Way(publisher.id, subscriber.id, (), NAN, NAN, NAN) for publisher, subscriber in scenario.pairs()]
    rows = _rows(Theory(scenario, traffic, ways, ()), detail=False)
    note = f"there is no model of {what}, so nothing is predicted; docs/extend.md says how to add one"
    return Prediction(scenario, rows, (), (), (note, *_unmatched_topics(scenario)))


def _without_notifications(traffic: Traffic) -> Traffic:
    """Removes notification rates, as fewer notifications arrive than were published if a queue is overloaded."""
    unknown = np.full_like(traffic.up, NAN)
    return replace(traffic, notifications_in=unknown, up=unknown, down=unknown, additional=unknown, unwanted=unknown)


def _rows(theory: Theory, detail: bool) -> tuple[Row, ...]:
    """The rows of all metrics: first the headline rows, then the rows per broker, per link, and so on."""
    headline = (row for definition in definitions() for row in definition.headline_rows(theory))
    details = (row for definition in definitions() for row in definition.detail_rows(theory)) if detail else ()
    return (*_arranged(headline), *_arranged(details))


def _arranged(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows grouped by the names of their labels, and then by the broker, link or pair that they are about."""
    groups: dict[Labels, dict[tuple[str, ...] | frozenset[str], list[Row]]] = {}
    for row in rows:
        names, values = tuple(row.labels), tuple(row.labels.values())
        place = frozenset(values[0].split(">")) if names == PER_LINK else values  # both directions of a link
        groups.setdefault(names, {}).setdefault(place, []).append(row)
    return (row for places in groups.values() for together in places.values() for row in together)


def experiment_as_json(experiment: Experiment, predictions: Iterable[Prediction], detail: bool) -> dict[str, Any]:
    """The JSON contract: one object, or for a sweep its points."""
    if not experiment.is_sweep:
        (prediction,) = predictions
        return prediction.as_json(detail=True)
    points = [{"at": dict(each.scenario.at), **each.as_json(detail)} for each in predictions]
    return {"scenario": experiment.name, "points": points}


def _unmatched_topics(scenario: Scenario) -> Iterator[str]:
    """Warnings about peers that receive nothing or reach nobody, usually because a topic is misspelt."""
    publishers, subscribers = scenario.publishers, scenario.subscribers
    for subscriber in subscribers:
        topic = subscriber.topic
        topics = [*(publisher.topic for publisher in publishers), *scenario.topics_of_parts]
        has_publisher = any(matches(topic, published_topic) for published_topic in topics)
        if not has_publisher and not scenario.publications.mean_rate_per_s(scenario.classes_matching(topic)):
            yield (
                f"subscriber {subscriber.id} at {subscriber.broker} receives nothing, as nobody publishes to {topic};"
                f" correct its topic, or publish to it{_listed('publishers', publishers)}"
            )
    for publisher in publishers:
        topic = publisher.topic
        filters = [*(subscriber.topic for subscriber in subscribers), *scenario.filters_of_parts]
        has_subscriber = any(matches(topic_filter, topic) for topic_filter in filters)
        if not has_subscriber and not _is_class_wanted(scenario, topic):
            yield (
                f"publisher {publisher.id} at {publisher.broker} reaches nobody, as nobody subscribes to {topic};"
                f" correct its topic, or subscribe to it{_listed('subscribers', subscribers)}"
            )


def _is_class_wanted(scenario: Scenario, topic: str) -> bool:
    """Whether subscriptions that come and go match this topic."""
    subscriptions = scenario.subscriptions
    is_in_group = scenario.group_above(topic) is not None and subscriptions.wide is not None
    return is_in_group or subscriptions.mean_active(scenario.classes_matching(topic)) > 0


def _listed(kind: str, peers: Sequence[Publisher | Subscriber]) -> str:
    topics = list(dict.fromkeys(peer.topic for peer in peers))
    more = ", ..." if len(topics) > TOPICS_LISTED_MAX else ""
    return f" (topics of {kind}: {', '.join(topics[:TOPICS_LISTED_MAX])}{more})" if topics else ""


def _traffic(scenario: Scenario, model: Model, columns: Iterator[Classes]) -> Traffic:
    refresh_s = None if scenario.refresh_ns is None else scenario.refresh_ns / NS_PER_S
    traffic = no_traffic(scenario.tree)
    for chunk in columns:
        traffic = traffic + model.traffic(scenario.tree, chunk, refresh_s, **scenario.routing_parameters)
    return traffic
