"""From the file as written to a Scenario: build the tree, spread the rates, check what needs the whole scenario."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from brokerbed.log.record import CLIENTS
from brokerbed.scenario import format as written
from brokerbed.scenario.checks import Path, Report, broker_exists, link_exists
from brokerbed.scenario.classes import ALL, LEAVES, PublicationsAt, SubscriptionsAt
from brokerbed.scenario.document import Plain, shown
from brokerbed.scenario.model import Cell, Churn, Publications, Scenario, Subscriptions
from brokerbed.scenario.topology import TopologyError, Tree
from brokerbed.scenario.units import NS_PER_S
from brokerbed.scenario.workload import WORKLOAD
from brokerbed.topics import filter_problem, topic_problem

E = TypeVar("E", SubscriptionsAt, PublicationsAt)


def resolve(file: written.ScenarioFile, at: Mapping[str, Plain], report: Report) -> Scenario | None:
    """The scenario, or None after at least one problem was reported."""
    try:
        tree = written.build_tree(file.topology)
    except TopologyError as error:
        report(("topology", "parents", error.broker) if error.broker else ("topology",), str(error))
        return None
    if CLIENTS in tree.index:
        text = f"no broker can be called {CLIENTS}; the log of the testbed's own clients has that name"
        report(("topology", "parents", CLIENTS), text)
        return None
    problems = 0

    def count(path: Path, message: str) -> None:
        nonlocal problems
        problems += 1
        report(path, message)

    scenario = Scenario(
        name=file.name, seed=file.seed, at=at, clock=file.clock, tree=tree, routing=file.routing.algorithm,
        routing_parameters=file.routing.parameters, refresh_ns=file.refresh,
        classes=file.classes.count, groups=file.classes.groups,
        subscriptions=_subscriptions(file, tree, count), publications=_publications(file, tree, count),
        service=file.service, publishers=file.publishers, subscribers=file.subscribers, copies=file.copies,
        faults=file.faults, payload_bytes=file.payload, peers=file.peers, limits=file.limits,
        durability=file.durability, links=file.links, tolerance=file.tolerance, parts=file.parts,
    )  # fmt: skip
    _check_peers(scenario, count)
    _check_faults(scenario, count)
    _check_links(scenario, count)
    for name, section in scenario.parts.items():
        WORKLOAD[name].check(section, scenario, (name,), count)
    return None if problems else scenario


def _subscriptions(file: written.ScenarioFile, tree: Tree, report: Report) -> Subscriptions:
    given, classes = file.subscriptions, file.classes
    places = _places(given.where, "subscriptions", tree, report)
    spread = wide = None
    if given.mean_active:
        assert given.lifetime is not None
        mean_active = given.mean_active / (len(places) * classes.count)
        spread = Churn(mean_active / given.lifetime.mean_s, given.lifetime)
    if given.wide is not None and classes.groups is None:
        report(("subscriptions", "wide"), "needs groups of classes, as in classes: {count: 1000, groups: 100}")
    elif given.wide is not None and given.wide.mean_active:
        assert given.lifetime is not None
        assert classes.groups is not None
        mean_active = given.wide.mean_active / (len(places) * classes.groups)
        wide = Churn(mean_active / given.lifetime.mean_s, given.lifetime)
    overrides = {}
    for cell, entry in _cells(given.at, "subscriptions", classes.count, tree, report):
        lifetime = entry.lifetime or given.lifetime
        assert lifetime is not None
        overrides[cell] = Churn(entry.arrival_rate, lifetime)
    return Subscriptions(spread, places, overrides, wide, given.qos)


def _publications(file: written.ScenarioFile, tree: Tree, report: Report) -> Publications:
    given, classes = file.publications, file.classes.count
    places = _places(given.where, "publications", tree, report)
    overrides = {cell: entry.rate for cell, entry in _cells(given.at, "publications", classes, tree, report)}
    return Publications(given.rate / (len(places) * classes), places, overrides, given.sources, given.qos)


def _places(where: str | tuple[str, ...], key: str, tree: Tree, report: Report) -> frozenset[int]:
    """The positions of the brokers over which rates are spread evenly."""
    if where == ALL:
        return frozenset(range(len(tree)))
    if where == LEAVES:
        return frozenset(range(len(tree))) - frozenset(tree.parents.tolist())
    places: dict[int, None] = {}
    for position, name in enumerate(where):
        if broker_exists(name, (key, "where", position), tree, report):
            if tree.index[name] in places:
                report((key, "where", position), f"broker {name} was given before")
            places[tree.index[name]] = None
    return frozenset(places) or frozenset((0,))  # after a problem was reported


def _cells(entries: Iterable[E], key: str, classes: int, tree: Tree, report: Report) -> list[tuple[Cell, E]]:
    """The entries of an `at` list by broker and class, each broker and class once."""
    cells: dict[Cell, E] = {}
    for position, entry in enumerate(entries):
        path: Path = (key, "at", position)
        if not broker_exists(entry.broker, (*path, "broker"), tree, report):
            continue
        if entry.class_ >= classes:
            report((*path, "class"), f"there is no class {entry.class_}; classes are 0 to {classes - 1}")
            continue
        cell = (tree.index[entry.broker], entry.class_)
        if cell in cells:
            report(path, f"broker {entry.broker} and class {entry.class_} were given before")
        cells[cell] = entry
    return list(cells.items())


def _check_peers(scenario: Scenario, report: Report) -> None:
    seen: set[str] = set()
    for key, peers in (("publishers", scenario.publishers), ("subscribers", scenario.subscribers)):
        for position, peer in enumerate(peers):
            path: Path = (key, position)
            if peer.id in seen:
                report((*path, "id"), f"the id {peer.id} was given before")
            seen.add(peer.id)
            broker_exists(peer.broker, (*path, "broker"), scenario.tree, report)
            check = topic_problem if key == "publishers" else filter_problem
            if trouble := check(peer.topic):
                report((*path, "topic"), f"{trouble}; not {shown(peer.topic)}")
            elif peer.topic.startswith("$"):
                report((*path, "topic"), f"topics that begin with $ stay on their broker; not {shown(peer.topic)}")
            elif scenario.copies > 1 and scenario.classes_matching(peer.topic):
                report((*path, "topic"), f"with copies, peers have topics of their own; {peer.topic} matches classes")


def _check_faults(scenario: Scenario, report: Report) -> None:
    end_ns = scenario.clock.warmup + scenario.clock.measure
    for position, fault in enumerate(scenario.faults):
        path: Path = ("faults", position)
        if fault.at is not None and fault.at >= end_ns:
            report((*path, "at"), f"is after the end of the run (warmup + measure = {end_ns / NS_PER_S:g}s)")
        kind = fault.kind
        kind.target.check(kind.name, fault.target, scenario, (*path, kind.name), report)


def _check_links(scenario: Scenario, report: Report) -> None:
    seen: set[frozenset[str]] = set()
    for position, link in enumerate(scenario.links):
        path: Path = ("links", position, "between")
        if link_exists(link.between, path, scenario.tree, report) and frozenset(link.between) in seen:
            report(path, f"the link between {link.between[0]} and {link.between[1]} was given before")
        seen.add(frozenset(link.between))
