"""Predicts a scenario: the rows of all metrics, with their predicted values."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from math import isnan
from typing import Any

import numpy as np

from brokerbed.analysis import traced
from brokerbed.analysis.columns import class_columns, peer_columns
from brokerbed.analysis.delays import Delays, predict_delays
from brokerbed.analysis.demands import part_columns
from brokerbed.analysis.lifetimes import Entering, entering, with_lifetimes
from brokerbed.analysis.link_load import (
    LinkLoad,
    NarrowDirection,
    link_load,
    narrow_directions,
    no_load,
    unknown_bytes,
)
from brokerbed.analysis.metrics.definition import Theory
from brokerbed.analysis.metrics.registry import definitions
from brokerbed.analysis.models.contract import Classes, Model, NotPredictedError, Traffic, no_traffic
from brokerbed.analysis.models.registry import MODELS
from brokerbed.analysis.path_times import with_distribution
from brokerbed.analysis.phases import phases_of
from brokerbed.analysis.placements import delays_of_placements, roams
from brokerbed.analysis.queues import NAN, Queue, Way
from brokerbed.metrics import PER_LINK, PER_PHASE, TOTAL, Labels, Row, method_of
from brokerbed.scenario import Experiment, Peer, Scenario, matches
from brokerbed.scenario.units import NS_PER_S

TOPICS_LISTED_MAX = 3  # in a warning about unmatched topics; enough to notice a misspelling


ENSEMBLE = (
    "subscribers that are drawn only once, and populations with deterministic ON and OFF periods, never forget how a"
    " run began; the predictions are means over all such runs, so the rows of one run are for information only"
)
FIRST_TREE = (
    "links move during a run, because of placement, so the final tree is not known before; the predictions are for the"
    " tree at the beginning"
)


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
        for subscriber in self.scenario.receivers:
            session = sessions.get(subscriber.id)
            if session is None or isnan(session.response_s) or session.expires:
                unknown.update(subscriber.places)
                continue
            messages = session.rate_per_s * session.response_s * self.scenario.copies / len(subscriber.places)
            for place in subscriber.places:
                waiting[place] = waiting.get(place, 0.0) + messages
        return {broker: messages for broker, messages in waiting.items() if broker not in unknown}

    def as_json(self, detail: bool) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.seed,
            "model_seconds": self.scenario.clock.measure / NS_PER_S,
            "metrics": [
                {"metric": row.metric, "labels": row.labels, "unit": row.unit, "predicted": row.predicted}
                | method_of(row.standard_error)
                for row in self.rows
                if detail or row.is_headline
            ],
            "unstable": [
                {"stage": queue.stage, "at": queue.at, "utilisation": queue.utilisation} for queue in self.unstable
            ],
            "notes": list(self.notes),
        }


def predict(scenario: Scenario, detail: bool = True, tree_is_final: bool = False) -> Prediction:
    """The headline rows, and with `detail` also the rows per broker, link and queue.

    `tree_is_final`: if links move, the scenario has the tree that they led to, and not the one at the beginning.
    """
    model = MODELS.all.get(scenario.routing)
    if model is None:
        return _unpredicted(scenario, f"{scenario.routing} routing")
    unknown = unknown_bytes(scenario)
    try:
        expected = _expected(scenario, model, bytes_are_known=unknown is None)
        if roams(scenario):
            delays = delays_of_placements(
                scenario, lambda placed: _delays(_expected(placed, model, bytes_are_known=unknown is None))
            )
        else:
            delays = _delays(expected)
    except NotPredictedError as error:
        return _unpredicted(scenario, str(error))
    whole, *parts = [
        traffic if delays.throughput_is_known else _without_notifications(traffic)
        for traffic in (
            each + expected.of_one_copy.times(scenario.copies) for each in (expected.of_classes, *expected.phases)
        )
    ]
    narrow = expected.narrow
    rows = _rows(Theory(scenario, whole, delays.ways, delays.stages, tuple(narrow.values())), detail)
    if detail and scenario.profiles:
        rows = (*rows, *_phase_rows([Theory(scenario, part, (), (), ()) for part in parts]))
    notes = (
        *((unknown,) if unknown and narrow else ()),
        *delays.notes,
        *traced.notes(scenario),
        *_meeting_answers(scenario),
        *_unmatched_topics(scenario),
    )
    if scenario.placement is not None and not tree_is_final:
        notes = (*notes, FIRST_TREE)
    if not scenario.subscriptions.forgets:
        notes = (*notes, ENSEMBLE)
    return Prediction(scenario, rows, delays.ways, tuple(delays.unstable), notes)


@dataclass(frozen=True)
class _Expected:
    """The traffic of a scenario."""

    entered: Entering
    of_classes: Traffic
    of_one_copy: Traffic  # of the peers, if they have copies
    phases: tuple[Traffic, ...]  # of the classes
    narrow: dict[str, NarrowDirection]
    scenario: Scenario


def _expected(scenario: Scenario, model: Model, bytes_are_known: bool) -> _Expected:
    """May raise NotPredictedError."""
    entered = entering(scenario)
    alive = entered.scenario
    offered = [
        _offered(alive, model, chain(class_columns(alive, model, phase), part_columns(alive)))
        for phase in phases_of(alive)
    ]
    of_one_copy, load_of_one_copy = _offered(alive, model, peer_columns(alive, model))
    of_classes = reduce(Traffic.__add__, (traffic for traffic, _ in offered)).times(1 / len(offered))
    load = reduce(LinkLoad.__add__, (load for _, load in offered)).times(1 / len(offered))
    load = load + load_of_one_copy.times(scenario.copies)
    narrow = narrow_directions(scenario, load, is_known=bytes_are_known)
    return _Expected(entered, of_classes, of_one_copy, tuple(traffic for traffic, _ in offered), narrow, scenario)


def _delays(expected: _Expected) -> Delays:
    scenario = expected.scenario
    delays = predict_delays(scenario, expected.of_classes, expected.of_one_copy, expected.narrow)
    delays = with_lifetimes(scenario, delays, expected.entered)
    return replace(delays, ways=tuple(map(with_distribution, delays.ways)))


def _unpredicted(scenario: Scenario, what: str) -> Prediction:
    """The headline rows without predicted values."""
    traffic = no_traffic(scenario.tree).times(NAN)
    ways = [Way(stream.sender, receiver.id, (), NAN, NAN, NAN) for stream, receiver in scenario.pairs()]
    rows = _rows(Theory(scenario, traffic, ways, (), ()), detail=False)
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


def _phase_rows(theories: Sequence[Theory]) -> Iterator[Row]:
    """The total of each rate and size in each phase of the period."""
    for definition in definitions():
        if definition.metric.headline == TOTAL and definition.metric.statistic.is_over_time:
            for phase, theory in enumerate(theories):
                for row in definition.headline_rows(theory):
                    yield replace(row, labels=dict(zip(PER_PHASE, (str(phase),), strict=True)))


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


def _meeting_answers(scenario: Scenario) -> Iterator[str]:
    """A warning if answers to the same request meet in a queue of brokers or links, where they come together."""
    if scenario.service.broker_in is None and scenario.service.link is None:
        return
    answered = Counter(requester.id for requester, _ in scenario.exchanges())
    if several := [requester for requester, responders in answered.items() if responders > 1]:
        yield (
            f"several responders answer each request of {several[0]}"
            + (f" and {len(several) - 1} more requesters" if len(several) > 1 else "")
            + "; their answers meet on the way back, so round trips may be longer than predicted"
        )


def _unmatched_topics(scenario: Scenario) -> Iterator[str]:
    """Warnings about peers that receive nothing or reach nobody, usually because a topic is misspelt."""
    publishers, requesters = scenario.publishers, scenario.requesters
    topics = [*(stream.topic for stream in scenario.streams), *scenario.topics_of_parts]
    for kind, receivers in (("subscriber", scenario.subscribers), ("responder", scenario.responders)):
        others = _listed("publishers", publishers) if kind == "subscriber" else _listed("requesters", requesters)
        for receiver in receivers:
            topic = receiver.topic
            has_publisher = any(matches(topic, published_topic) for published_topic in topics)
            if not has_publisher and not scenario.publications.mean_rate_per_s(scenario.classes_matching(topic)):
                yield (
                    f"{kind} {receiver.id} at {_where(receiver)} receives nothing, as nobody publishes to {topic};"
                    f" correct its topic, or publish to it{others}"
                )
    filters = [*(receiver.topic for receiver in scenario.receivers), *scenario.filters_of_parts]
    for publisher in publishers:
        topic = publisher.topic
        has_subscriber = any(matches(topic_filter, topic) for topic_filter in filters)
        if not has_subscriber and not _is_class_wanted(scenario, topic):
            yield (
                f"publisher {publisher.id} at {_where(publisher)} reaches nobody, as nobody subscribes to {topic};"
                f" correct its topic, or subscribe to it{_listed('subscribers', scenario.subscribers)}"
            )
    for requester in requesters:
        if not any(matches(responder.topic, requester.topic) for responder in scenario.responders):
            yield (
                f"requester {requester.id} at {requester.broker} gets no answers, as no responder has the topic"
                f" {requester.topic}; correct its topic, or add a responder"
                f"{_listed('responders', scenario.responders)}"
            )


def _is_class_wanted(scenario: Scenario, topic: str) -> bool:
    """Whether subscriptions that come and go match this topic."""
    subscriptions = scenario.subscriptions
    is_in_group = scenario.group_above(topic) is not None and subscriptions.wide is not None
    return is_in_group or subscriptions.mean_active(scenario.classes_matching(topic)) > 0


def _where(peer: Peer) -> str:
    return ", ".join(peer.places)


def _listed(kind: str, peers: Sequence[Peer]) -> str:
    topics = list(dict.fromkeys(peer.topic for peer in peers))
    more = ", ..." if len(topics) > TOPICS_LISTED_MAX else ""
    return f" (topics of {kind}: {', '.join(topics[:TOPICS_LISTED_MAX])}{more})" if topics else ""


def _offered(scenario: Scenario, model: Model, columns: Iterable[Classes]) -> tuple[Traffic, LinkLoad]:
    """The traffic of these columns, and the bytes that it puts on links."""
    refresh_s = None if scenario.refresh_ns is None else scenario.refresh_ns / NS_PER_S

    def of(classes: Classes) -> Traffic:
        return model.traffic(scenario.tree, classes, refresh_s, **scenario.routing_parameters)

    traffic, load = no_traffic(scenario.tree), no_load(scenario.tree)
    for chunk in columns:
        traffic, load = traffic + of(chunk), load + link_load(scenario, chunk, of)
    return traffic, load
