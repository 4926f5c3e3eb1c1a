"""What theory says of a scenario: the rows of DESIGN's metric table, each with its predicted value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from brokerbed.analysis.columns import class_columns, peer_columns
from brokerbed.analysis.delays import Queue, Way, predict_delays
from brokerbed.analysis.models.hierarchical import Classes, Model, Traffic, no_traffic
from brokerbed.analysis.models.registry import model_of
from brokerbed.metrics import HEADLINE_PER_PAIR, HEADLINE_TOTALS, Row
from brokerbed.scenario import Experiment, Publisher, Scenario, Subscriber, matches
from brokerbed.scenario.units import NS_PER_S

TOPICS_LISTED_MAX = 3  # of a warning about topics that do not match: enough to see a misspelling


@dataclass(frozen=True, slots=True)
class Prediction:
    scenario: Scenario
    rows: tuple[Row, ...]  # headline rows first
    ways: tuple[Way, ...]
    unstable: tuple[Queue, ...]
    notes: tuple[str, ...]

    def waiting_messages(self) -> dict[str, float]:
        """How many messages wait at a broker for its subscribers, on average: rate times time (Little), of every copy.

        Brokers with a subscriber of which theory does not know it are left out.
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
    """The headline rows, and with `detail` those per broker, link and stage."""
    model = model_of(scenario.routing)
    if model is None:
        return _unpredicted(scenario)
    of_classes = _traffic(scenario, model, class_columns(scenario))
    of_one_copy = _traffic(scenario, model, peer_columns(scenario))
    delays = predict_delays(scenario, of_classes, of_one_copy)
    traffic = of_classes + of_one_copy.times(scenario.copies)
    rows = [*_totals(traffic, delays.throughput_is_known), *_per_way(delays.ways)]
    if detail:
        rows += _per_broker_and_link(scenario, traffic, delays.throughput_is_known)
        rows += [Row("delay.stage", {"stage": it.stage, "at": it.at}, _known(it.response_s)) for it in delays.stages]
    notes = (*delays.notes, *_unmatched_topics(scenario))
    return Prediction(scenario, tuple(rows), delays.ways, tuple(delays.unstable), notes)


def _unpredicted(scenario: Scenario) -> Prediction:
    """The headline rows, without values."""
    pairs = [{"publisher": publisher.id, "subscriber": subscriber.id} for publisher, subscriber in scenario.pairs()]
    rows = [Row(metric, {}, None) for metric in HEADLINE_TOTALS]
    rows += [Row(metric, labels, None) for labels in pairs for metric in HEADLINE_PER_PAIR]
    note = (
        f"there is no model of {scenario.routing} routing, so nothing is predicted; docs/extend.md says how to add one"
    )
    return Prediction(scenario, tuple(rows), (), (), (note, *_unmatched_topics(scenario)))


def experiment_as_json(experiment: Experiment, predictions: Iterable[Prediction], detail: bool) -> dict[str, Any]:
    """The JSON contract: one object, or for a sweep its points."""
    if not experiment.is_sweep:
        (prediction,) = predictions
        return prediction.as_json(detail=True)
    points = [{"at": dict(each.scenario.at), **each.as_json(detail)} for each in predictions]
    return {"scenario": experiment.name, "points": points}


def _unmatched_topics(scenario: Scenario) -> Iterator[str]:
    """Peers that nothing reaches, or that reach nobody: most often one of two topics is misspelt."""
    publishers, subscribers = scenario.publishers, scenario.subscribers
    published, churn = scenario.publications, scenario.subscriptions
    rates = published.everywhere_per_s, published.overrides_per_s
    for subscriber in subscribers:
        its = subscriber.topic
        if not (any(matches(its, it.topic) for it in publishers) or _in_classes(scenario, its, *rates)):
            yield (
                f"subscriber {subscriber.id} at {subscriber.broker} receives nothing, as nobody publishes to {its};"
                f" correct its topic, or publish to it{_listed('publishers', publishers)}"
            )
    active = churn.everywhere.mean_active if churn.everywhere else 0.0
    actives = active, {cell: one.mean_active for cell, one in churn.overrides.items()}
    for publisher in publishers:
        its = publisher.topic
        if not (any(matches(it.topic, its) for it in subscribers) or _in_classes(scenario, its, *actives)):
            yield (
                f"publisher {publisher.id} at {publisher.broker} reaches nobody, as nobody subscribes to {its};"
                f" correct its topic, or subscribe to it{_listed('subscribers', subscribers)}"
            )


def _in_classes(scenario: Scenario, topic: str, everywhere: float, overrides: Mapping[tuple[int, int], float]) -> bool:
    """Whether a value (spread evenly, or given one by one) is above 0 in a class that the topic matches."""
    numbers = scenario.classes_matching(topic)
    own = [value for (_, number), value in overrides.items() if number in numbers]
    is_spread = everywhere > 0 and len(own) < len(numbers) * len(scenario.tree)
    return is_spread or any(value > 0 for value in own)


def _listed(kind: str, peers: Sequence[Publisher | Subscriber]) -> str:
    topics = list(dict.fromkeys(peer.topic for peer in peers))
    more = ", ..." if len(topics) > TOPICS_LISTED_MAX else ""
    return f" (topics of {kind}: {', '.join(topics[:TOPICS_LISTED_MAX])}{more})" if topics else ""


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def _traffic(scenario: Scenario, model: Model, columns: Iterator[Classes]) -> Traffic:
    refresh_s = None if scenario.refresh_ns is None else scenario.refresh_ns / NS_PER_S
    traffic = no_traffic(scenario.tree)
    for chunk in columns:
        traffic = traffic + model(scenario.tree, chunk, refresh_s)
    return traffic


def _totals(traffic: Traffic, throughput_is_known: bool) -> Iterator[Row]:
    notifications = float((traffic.up + traffic.down).sum())
    control = float(traffic.control.sum())
    yield Row("table.remote_entries", {}, float(traffic.remote_entries.sum()))
    yield Row("table.local_entries", {}, float(traffic.local_entries.sum()))
    yield Row("rate.notifications", {}, notifications if throughput_is_known else None)
    additional = float(traffic.additional.sum())
    yield Row("rate.notifications.additional", {}, additional if throughput_is_known else None)
    yield Row("rate.control", {}, control)
    yield Row("rate.total", {}, notifications + control if throughput_is_known else None)


def _per_way(ways: Iterable[Way]) -> Iterator[Row]:
    for way in ways:
        labels = {"publisher": way.publisher, "subscriber": way.subscriber}
        yield Row("delay.end_to_end", labels, _known(way.end_to_end_s))
        yield Row("delivery.ratio", labels, _known(way.delivery_ratio))


def _per_broker_and_link(scenario: Scenario, traffic: Traffic, throughput_is_known: bool) -> Iterator[Row]:
    tree = scenario.tree
    remote_entries = tree.children_sums(traffic.remote_entries).tolist()
    local_entries = traffic.local_entries.tolist()
    for name, remote, local in zip(tree.names, remote_entries, local_entries, strict=True):
        yield Row("table.remote_entries", {"broker": name}, remote)
        yield Row("table.local_entries", {"broker": name}, local)
    up, down, control = traffic.up.tolist(), traffic.down.tolist(), traffic.control.tolist()
    for child in range(1, len(tree)):
        names = tree.names[child], tree.names[int(tree.parents[child])]
        upward, downward = {"link": ">".join(names)}, {"link": ">".join(reversed(names))}
        yield Row("rate.notifications", upward, up[child] if throughput_is_known else None)
        yield Row("rate.notifications", downward, down[child] if throughput_is_known else None)
        yield Row("rate.control", upward, control[child])
