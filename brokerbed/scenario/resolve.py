"""From the file as written to a Scenario: build the tree, spread the rates, check what needs the whole scenario."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path as FilePath
from typing import TypeVar

from brokerbed.log.record import CLIENTS
from brokerbed.scenario import adaptive, costs
from brokerbed.scenario import format as written
from brokerbed.scenario.checks import Path, Report, broker_exists, link_exists, pair_exists
from brokerbed.scenario.classes import ALL, LEAVES, PublicationsAt, Static, SubscriptionsAt
from brokerbed.scenario.classes import Subscriptions as SubscriptionsSection
from brokerbed.scenario.document import Plain, shown
from brokerbed.scenario.model import Publications, Scenario
from brokerbed.scenario.peers import IntermittentPeer, Peer, Publisher, Requester, Subscriber
from brokerbed.scenario.placement import cheapest_leaves, dearest_leaves
from brokerbed.scenario.profile import Factor, Profile
from brokerbed.scenario.recorded import Arrivals, Connectivity
from brokerbed.scenario.subscriptions import Cell, Churn, Placement, Population, Subscriptions
from brokerbed.scenario.topology import TopologyError, Tree
from brokerbed.scenario.trace_file import TraceError
from brokerbed.scenario.units import NS_PER_S
from brokerbed.scenario.workload import WORKLOAD
from brokerbed.topics import filter_problem, topic_problem

E = TypeVar("E", SubscriptionsAt, PublicationsAt)
R = TypeVar("R", Publisher, Subscriber)


def resolve(file: written.ScenarioFile, at: Mapping[str, Plain], folder: FilePath, report: Report) -> Scenario | None:
    """The scenario, or None after at least one problem was reported. `folder` has the files that it names."""
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
        subscriptions=_subscriptions(file, tree, folder, count),
        publications=_publications(file, tree, folder, count),
        service=file.service,
        publishers=_with_traces(file.publishers, "publishers", folder, count),
        subscribers=_with_traces(file.subscribers, "subscribers", folder, count),
        requesters=file.requesters, responders=file.responders, copies=file.copies,
        faults=file.faults, payload_bytes=file.payload, peers=file.peers, limits=file.limits,
        durability=file.durability, links=file.links, media=file.media,
        costs=costs.resolved(file.costs, file.placement, tree, count), placement=file.placement,
        tolerance=file.tolerance, model=file.model, parts=file.parts,
    )  # fmt: skip
    _check_profiles(scenario, count)
    _check_peers(scenario, count)
    _check_faults(scenario, count)
    _check_links(scenario, count)
    _check_media(scenario, count)
    adaptive.check(scenario, count)
    for name, section in scenario.parts.items():
        for key in WORKLOAD[name].excludes:
            if key in file.model_fields_set:
                count((name,), f"{name} and {key} do not go together; leave out one of them")
        WORKLOAD[name].check(section, scenario, (name,), count)
    return None if problems else scenario


def _subscriptions(file: written.ScenarioFile, tree: Tree, folder: FilePath, report: Report) -> Subscriptions:
    given, classes = file.subscriptions, file.classes
    places = _places(given.where, "subscriptions", tree, report)
    spread: Churn | Population | None = None
    wide = None
    if given.population is not None:
        spread = Population(given.population.size, given.population.on, given.population.off)
    elif given.mean_active:
        assert given.lifetime is not None
        mean_active = given.mean_active / (len(places) * classes.count)
        spread = Churn((1 - given.roam) * mean_active / given.lifetime.mean_s, given.lifetime)
    if given.wide is not None and classes.groups is None:
        report(("subscriptions", "wide"), "needs groups of classes, as in classes: {count: 1000, groups: 100}")
    elif given.wide is not None and given.wide.mean_active:
        assert given.lifetime is not None
        assert classes.groups is not None
        mean_active = given.wide.mean_active / (len(places) * classes.groups)
        wide = Churn((1 - given.roam) * mean_active / given.lifetime.mean_s, given.lifetime)
    if given.roam and len(places) == 1:
        report(("subscriptions", "roam"), "needs at least two brokers among which subscriptions can move")
    overrides: dict[Cell, Churn | Population] = {}
    for cell, entry in _cells(given.at, "subscriptions", classes.count, tree, report):
        overrides[cell] = _override(entry, given)
    placement = None if given.static is None else _placement(given.static, tree, report)
    profile = _profile(given.profile, "subscriptions", folder, report)
    return Subscriptions(spread, places, overrides, wide, given.qos, placement, given.roam, given.lifetime, profile)


def _override(entry: SubscriptionsAt, given: SubscriptionsSection) -> Churn | Population:
    if entry.population is None:
        lifetime = entry.lifetime or given.lifetime
        assert lifetime is not None
        assert entry.arrival_rate is not None
        return Churn(entry.arrival_rate, lifetime)
    on, off = entry.population.on, entry.population.off
    if given.population is not None:
        on, off = on or given.population.on, off or given.population.off
    assert on is not None
    assert off is not None
    return Population(entry.population.size, on, off)


def _placement(static: Static, tree: Tree, report: Report) -> Placement | None:
    leaves = tuple(sorted(_leaves(tree)))
    if static.count > len(leaves):
        report(
            ("subscriptions", "static", "count"),
            f"must be at most the number of leaves ({len(leaves)}), not {static.count}",
        )
        return None
    if static.place == "random":
        return Placement(static.count, leaves, True, static.redraw)
    brokers = cheapest_leaves(tree, static.count) if static.place == "best" else dearest_leaves(tree, static.count)
    return Placement(static.count, brokers, False)


def _publications(file: written.ScenarioFile, tree: Tree, folder: FilePath, report: Report) -> Publications:
    given, classes = file.publications, file.classes.count
    places = _places(given.where, "publications", tree, report)
    overrides = {cell: entry.rate for cell, entry in _cells(given.at, "publications", classes, tree, report)}
    profile = _profile(given.profile, "publications", folder, report)
    return Publications(given.rate / (len(places) * classes), places, overrides, given.sources, profile, given.qos)


def _profile(given: Profile | None, key: str, folder: FilePath, report: Report) -> Factor | None:
    try:
        return None if given is None else given.resolved(folder)
    except TraceError as error:
        report((key, "profile", "trace"), str(error))
        return None


def _with_traces(peers: tuple[R, ...], section: str, folder: FilePath, report: Report) -> tuple[R, ...]:
    """The peers with what was recorded of them."""
    resolved = []
    for position, peer in enumerate(peers):
        recorded: dict[str, object] = {}
        for key in ("connectivity", "arrivals"):
            given: Connectivity | Arrivals | None = getattr(peer, key, None)
            try:
                recorded |= {} if given is None else {key: given.resolved(folder)}
            except TraceError as error:
                report((section, position, key, "trace"), str(error))
        if isinstance(arrivals := recorded.get("arrivals"), Arrivals):
            recorded["rate"] = arrivals.rate_per_s
        resolved.append(peer.model_copy(update=recorded) if recorded else peer)
    return tuple(resolved)


def _places(where: str | tuple[str, ...], key: str, tree: Tree, report: Report) -> frozenset[int]:
    """The positions of the brokers over which rates are spread evenly."""
    if where == ALL:
        return frozenset(range(len(tree)))
    if where == LEAVES:
        return _leaves(tree)
    places: dict[int, None] = {}
    for position, name in enumerate(where):
        if broker_exists(name, (key, "where", position), tree, report):
            if tree.index[name] in places:
                report((key, "where", position), f"broker {name} was given before")
            places[tree.index[name]] = None
    return frozenset(places) or frozenset((0,))  # after a problem was reported


def _leaves(tree: Tree) -> frozenset[int]:
    return frozenset(range(len(tree))) - frozenset(tree.parents.tolist())


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


def _check_profiles(scenario: Scenario, report: Report) -> None:
    of_subscriptions, of_publications = scenario.subscriptions.profile, scenario.publications.profile
    if of_subscriptions and of_publications and of_subscriptions.period_ns != of_publications.period_ns:
        periods = [f"{profile.period_ns / NS_PER_S:g}s" for profile in (of_subscriptions, of_publications)]
        text = f"must have the same period as subscriptions.profile ({periods[0]}), not {periods[1]}"
        report(("publications", "profile"), text)
    measured_ns, period_ns = scenario.clock.measure, scenario.period_ns
    if period_ns is not None and measured_ns < period_ns:
        key = "publications" if of_subscriptions is None else "subscriptions"
        text = (
            f"is shorter than one period of {key}.profile ({period_ns / NS_PER_S:g}s), and whole periods are compared"
        )
        report(("clock", "measure"), text)


def _check_peers(scenario: Scenario, report: Report) -> None:
    seen: set[str] = set()
    kinds: dict[str, tuple[tuple[Peer, ...], Callable[[str], str | None]]] = {
        "publishers": (scenario.publishers, topic_problem),
        "subscribers": (scenario.subscribers, filter_problem),
        "requesters": (scenario.requesters, topic_problem),
        "responders": (scenario.responders, filter_problem),
    }
    for key, (peers, check) in kinds.items():
        for position, peer in enumerate(peers):
            path: Path = (key, position)
            if peer.id in seen:
                report((*path, "id"), f"the id {peer.id} was given before")
            seen.add(peer.id)
            _check_places(peer, path, scenario, report)
            if trouble := check(peer.topic):
                report((*path, "topic"), f"{trouble}; not {shown(peer.topic)}")
            elif peer.topic.startswith("$"):
                report((*path, "topic"), f"topics that begin with $ stay on their broker; not {shown(peer.topic)}")
            elif scenario.copies > 1 and scenario.classes_matching(peer.topic):
                report((*path, "topic"), f"with copies, peers have topics of their own; {peer.topic} matches classes")
            elif isinstance(peer, Requester) and peer.topic == peer.inbox.topic:
                report((*path, "topic"), f"answers to {peer.id} come to {peer.topic}, so requests need another topic")


def _check_places(peer: Peer, path: Path, scenario: Scenario, report: Report) -> None:
    if not (isinstance(peer, IntermittentPeer) and peer.roams):
        broker_exists(peer.broker, (*path, "broker"), scenario.tree, report)
        return
    for position, name in enumerate(peer.brokers):
        place: Path = (*path, "brokers", position)
        if broker_exists(name, place, scenario.tree, report) and name in peer.brokers[:position]:
            report(place, f"broker {name} was given before")
    if scenario.placement is not None:
        report((*path, "brokers"), "brokers and placement do not go together: either peers or links move")


def _check_faults(scenario: Scenario, report: Report) -> None:
    end_ns = scenario.clock.warmup + scenario.clock.measure
    for position, fault in enumerate(scenario.faults):
        path: Path = ("faults", position)
        if fault.at is not None and fault.at >= end_ns:
            report((*path, "at"), f"is after the end of the run (warmup + measure = {end_ns / NS_PER_S:g}s)")
        kind = fault.kind
        kind.target.check(kind.name, fault.target, scenario, (*path, kind.name), report)


def _check_media(scenario: Scenario, report: Report) -> None:
    for position, name in enumerate(scenario.media):
        path: Path = ("media", position)
        if broker_exists(name, path, scenario.tree, report) and name in scenario.media[:position]:
            report(path, f"broker {name} was given before")


def _check_links(scenario: Scenario, report: Report) -> None:
    seen: set[frozenset[str]] = set()
    for position, link in enumerate(scenario.links):
        path: Path = ("links", position, "between")
        exists = pair_exists if scenario.placement is not None else link_exists
        if exists(link.between, path, scenario.tree, report) and frozenset(link.between) in seen:
            report(path, f"the link between {link.between[0]} and {link.between[1]} was given before")
        seen.add(frozenset(link.between))
