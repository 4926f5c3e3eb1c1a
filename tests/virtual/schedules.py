"""Random fault schedules on simulated networks: run, judged, and shrunk to the smallest that still fails.

A schedule says everything: the tree, who subscribes and publishes when, what breaks when and for how long. After the last
fault everything heals; then every acknowledged message must have reached every subscription that was there
throughout, in order per publisher and topic, at QoS 2 once, and every routing table must be as defined.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from random import Random
from typing import Any

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.announcements import Announcements
from brokerbed.broker.core.link import Link
from brokerbed.broker.core.overlay import Overlay
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.values import NS_PER_S, Entry
from brokerbed.orchestrator.simulator.clients import Client
from brokerbed.orchestrator.simulator.link_schedule import Quality
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.network import Host, Uplink
from brokerbed.orchestrator.simulator.wire import NO_DELAY
from brokerbed.topics import ADVERTISE, matches
from tests import routing_oracle as oracle
from tests.virtual.crashing import CrashAtCommit, CrashingHost

MS = 1_000_000
TOPICS = ("a/1", "a/2", "b/1")
FILTERS = ("a/1", "a/2", "b/1", "a/c", "a/+", "a/#", "+/1", "#")
BROKERS_MAX = 15
ACTIVE_MS = 20_000  # in which things happen
CALM_NS = 120 * NS_PER_S  # for everything to arrive after the last fault
EVENTS_MAX = 3_000_000
REFRESH_S = 60  # faults together last less than two such periods, so nobody drops an entry as stale


@dataclass(frozen=True)
class Schedule:
    parents: tuple[int, ...]  # of each broker; -1 for the first
    routing: str
    subscribers: tuple[tuple[int, str, int], ...]  # broker, filter, QoS; there from the beginning to the end
    toggles: tuple[tuple[int, int, str], ...]  # when (ms), broker, filter: others subscribe, and unsubscribe
    publications: tuple[tuple[int, int, str, int], ...]  # when, broker, topic, QoS
    faults: tuple[tuple[int, str, int, int], ...]  # when, what, which broker, link (by its child) or client, how long
    commit_ms: int = 2  # how long storing takes
    delay_ms: int = 0  # of every link
    advertisements: tuple[tuple[int, int, str], ...] = ()  # when, broker, filter: the publisher there (un)advertises
    moves: tuple[tuple[int, int, int], ...] = ()  # when, child, which of its parent's other neighbours gets it
    service_us: int = 0  # mean of the emulated service at inputs and links
    placement_ms: int = 0  # period of adaptive placement; 0: none
    refresh_s: int = 0  # of all brokers; 0: never

    @staticmethod
    def read(text: str) -> "Schedule":
        return Schedule(**{key: _tuples(value) for key, value in json.loads(text).items()})

    def written(self) -> str:
        return json.dumps(asdict(self))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


FAULTS = ("crash", "cut", "cut-up", "cut-down", "break", "disconnect", "pause")


def draw(seed: int) -> Schedule:
    random = Random(f"schedule/{seed}")
    size = random.randint(3, BROKERS_MAX)

    def time_ms() -> int:
        return random.randrange(ACTIVE_MS)

    def broker() -> int:
        return random.randrange(size)

    subscribers = tuple(
        (broker(), random.choice(FILTERS), random.choice((1, 1, 2))) for _ in range(random.randint(1, 4))
    )
    faults = []
    for _ in range(random.randint(1, 7)):
        what = random.choice(FAULTS)
        link_or_broker = random.randrange(1, size) if what in ("cut", "cut-up", "cut-down", "break") else broker()
        which = random.randrange(len(subscribers)) if what == "disconnect" else link_or_broker
        faults.append((time_ms(), what, which, random.choice((5, 100, 1000, 5000, 40_000))))
    return Schedule(
        parents=(-1, *(random.randrange(child) for child in range(1, size))),
        routing=random.choice(oracle.ALL),
        subscribers=subscribers,
        toggles=tuple(sorted((time_ms(), broker(), random.choice(FILTERS)) for _ in range(random.randint(0, 20)))),
        publications=tuple(
            sorted((time_ms(), random.randrange(min(size, 3)), random.choice(TOPICS), random.choice((1, 1, 2)))
                   for _ in range(random.randint(1, 60)))
        ),
        faults=tuple(sorted(faults)),
        commit_ms=random.choice((0, 2, 50, 500)),
        delay_ms=random.choice((0, 0, 1, 20)),
        advertisements=tuple(
            sorted((time_ms(), random.randrange(min(size, 3)), random.choice(FILTERS))
                   for _ in range(random.randint(0, 20)))
        ),
        refresh_s=random.choice((0, REFRESH_S)),
    )  # fmt: skip


def draw_moving(seed: int) -> Schedule:
    """A schedule in which links move, too."""
    schedule, random = draw(seed), Random(f"moves/{seed}")
    moves = sorted(
        (random.randrange(ACTIVE_MS), random.randrange(1, len(schedule.parents)), random.randrange(4))
        for _ in range(random.randint(1, 12))
    )
    moving = replace(schedule, routing="peer", advertisements=())
    if random.random() < 0.5:
        moving = replace(schedule, routing="peer-advertisement")
    is_adaptive = random.random() < 0.5
    return (
        replace(moving, placement_ms=random.choice((300, 2000))) if is_adaptive else replace(moving, moves=tuple(moves))
    )


def placement_config(number: int, period_ms: int) -> PlacementConfig:
    """Costs are such that there is always something to be gained."""
    random = Random("costs")
    names = [f"b{broker}" for broker in range(BROKERS_MAX)]
    costs = {frozenset(pair): random.uniform(0.1, 5) for pair in combinations(names, 2)}
    return PlacementConfig(Random(f"search/{number}"), period_ms * MS, moves=10, iterations=5, gain=0, link_costs=costs)


class _Noting(Client):
    """Notes what it received, and what of its own was acknowledged."""

    def __init__(self, loop: Loop, host: Host, client_id: str) -> None:
        super().__init__(loop, host, client_id)
        self.got: list[tuple[bytes, int]] = []
        self.acked: list[bytes] = []
        self.received = lambda _, payload, qos, __: self.got.append((payload, qos))
        self.acknowledged = lambda message: self.acked.append(message.payload)


class Trial:
    """One schedule, run."""

    def __init__(self, schedule: Schedule, acknowledges_first: bool = False, crash: tuple[int, str] = (0, "")) -> None:
        """`crash`: the broker that makes the commit of this number dies `before` or `after` it; needs `commit_ms`."""
        self.schedule = schedule
        self.crash = CrashAtCommit(*crash)
        self.loop = Loop()
        self.hosts = [self._host(number, acknowledges_first) for number in range(len(schedule.parents))]
        quality = NO_DELAY if schedule.delay_ms == 0 else Quality(lambda: schedule.delay_ms * MS)
        self.moves_begun = 0
        by_name = {host.name: host for host in self.hosts}
        self.links = {
            child: Uplink(self.hosts[child], self.hosts[parent], by_name, lambda *_: (quality, quality))
            for child, parent in enumerate(schedule.parents)
            if parent >= 0
        }
        self.subscribers = [
            _Noting(self.loop, self.hosts[broker], f"s{number}")
            for number, (broker, _, _) in enumerate(schedule.subscribers)
        ]
        self.togglers = {broker: Client(self.loop, host, f"t{broker}") for broker, host in enumerate(self.hosts)}
        self.publishers = {broker: _Noting(self.loop, host, f"p{broker}") for broker, host in enumerate(self.hosts)}
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._down: set[int] = set()

    def _host(self, number: int, acknowledges_first: bool) -> Host:
        schedule = self.schedule
        parent = schedule.parents[number]
        random = Random(f"service/{number}")

        def demand() -> int:
            return round(random.expovariate(1 / (schedule.service_us * 1000)))

        service = demand if schedule.service_us else None
        placement = placement_config(number, schedule.placement_ms) if schedule.placement_ms else None

        def config(life: int) -> BrokerConfig:
            return BrokerConfig(
                name=f"b{number}", incarnation=str(life), id_token=f"{number}/{life}", routing=schedule.routing,
                keep_alive_max_s=0, service_in=service, service_link=service, placement=placement,
                refresh_s=schedule.refresh_s,
            )  # fmt: skip

        host = CrashingHost(
            self.crash, self.loop, f"b{number}", config, f"b{parent}" if parent >= 0 else None, is_durable=True,
            commit_ns=schedule.commit_ms * MS,
        )  # fmt: skip
        host.acknowledges_first = acknowledges_first
        return host

    def run(self) -> list[str]:
        """What is wrong in the end; nothing, if all is well."""
        for host in self.hosts:
            host.start()
        everybody = [*self.subscribers, *self.togglers.values(), *self.publishers.values()]
        for client in everybody:
            client.connect()
        for client, (_, topic_filter, qos) in zip(self.subscribers, self.schedule.subscribers, strict=True):
            client.subscribe(topic_filter, qos)
        begin_ns = 30 * NS_PER_S  # everybody is subscribed everywhere by then
        if not self._calm(begin_ns):
            return ["it does not come to rest at the beginning"]
        for events, action in (
            (self.schedule.toggles, self._toggle),
            (self.schedule.advertisements, self._advertise),
            (self.schedule.moves, self._move),
            (self.schedule.publications, self._publish),
            (self.schedule.faults, self._strike),
        ):
            for when, *what in events:
                self.loop.at(begin_ns + when * MS, action, tuple(what))
        lasts_ms = max([ACTIVE_MS, *(when + lasts for when, _, _, lasts in self.schedule.faults)])
        if not self._calm(begin_ns + lasts_ms * MS + CALM_NS):
            return ["it does not come to rest"]
        return [*self._wrong_deliveries(), *self._wrong_tree(), *self._wrong_tables()]

    def _calm(self, until_ns: int) -> bool:
        return self.loop.run(until_ns, EVENTS_MAX)

    def _toggle(self, what: tuple[int, str]) -> None:
        broker, topic_filter = what
        _toggle(self.togglers[broker], topic_filter)

    def _advertise(self, what: tuple[int, str]) -> None:
        broker, topic_filter = what
        _toggle(self.publishers[broker], ADVERTISE + topic_filter)

    def _publish(self, what: tuple[int, str, int]) -> None:
        broker, topic, qos = what
        number = self._numbers[what] = self._numbers.get(what, 0) + 1
        self.publishers[broker].publish(topic, f"{broker} {topic} {qos} {number}".encode(), qos)

    def _move(self, what: tuple[int, int]) -> None:
        """Have the parent of a broker move it to another neighbour, if everything needed for that is up."""
        child, which = what
        old = self.links[child].parent
        if old.is_stopped:
            return
        neighbours = [link.peer for link in _links_of(old) if link.peer != self.hosts[child].name]
        if neighbours:
            new = neighbours[which % len(neighbours)]
            problem = old.broker.overlay.link_moves.begin(self.hosts[child].name, new, self.loop.now_ns)
            self.moves_begun += problem is None
            old.flush()

    def _strike(self, fault: tuple[str, int, int]) -> None:
        what, which, lasts_ms = fault
        heal = self._heal_of(what, which)
        if heal is not None:
            self.loop.at(self.loop.now_ns + lasts_ms * MS, lambda _: heal(), None)

    def _heal_of(self, what: str, which: int) -> Callable[[], None] | None:
        if what == "crash":
            return self._crash(self.hosts[which])
        if what == "pause":
            host = self.hosts[which]
            host.pause(True)
            return lambda: host.pause(False)
        if what == "disconnect":
            client = self.subscribers[which]
            client.disconnect()
            return client.connect
        link = self.links[which]
        if what == "break":
            link.break_()
            return None
        ways = {"cut": ("up", "down"), "cut-up": ("up",), "cut-down": ("down",)}[what]
        link.cut(*ways)
        parent = link.parent.name
        return lambda: link.repair(*ways, parent=parent)

    def _crash(self, host: Host) -> Callable[[], None] | None:
        if not host.is_up:
            return None
        host.crash()
        return host.start

    # -- the judgement ----------------------------------------------------------------------------------------

    def _wrong_deliveries(self) -> Iterator[str]:
        acked = [payload for publisher in self.publishers.values() for payload in publisher.acked]
        due = sum(qos > 0 for *_, qos in self.schedule.publications)
        if len(acked) < due:
            yield f"only {len(acked)} of {due} publications were acknowledged"
        for client, (_, topic_filter, _) in zip(self.subscribers, self.schedule.subscribers, strict=True):
            firsts = list(dict.fromkeys(payload for payload, _ in client.got))
            for payload in acked:
                if matches(topic_filter, payload.decode().split()[1]) and payload not in firsts:
                    yield f"{client.client_id} did not get {payload.decode()}"
            twice = [payload for payload, qos in client.got if qos == 2]
            for payload in {payload for payload in twice if twice.count(payload) > 1}:
                yield f"{client.client_id} got {payload.decode()} twice"
            last: dict[bytes, int] = {}
            for payload in firsts:
                source, _, number = payload.rpartition(b" ")
                if int(number) < last.get(source, 0):
                    yield f"{client.client_id} got {payload.decode()} out of order"
                last[source] = int(number)

    def _parents(self) -> dict[str, str | None]:
        """The parents in the end."""
        return {
            host.name: None if (above := host.broker.overlay.parent) is None or above.link is None else above.link.peer
            for host in self.hosts
        }

    def _wrong_tree(self) -> Iterator[str]:
        """Children and parents know one another, no move is unfinished, and every broker is below the root."""
        parents = self._parents()
        for host in self.hosts:
            children = [link.peer for link in _links_of(host) if not link.is_parent]
            expected = [name for name, parent in parents.items() if parent == host.name]
            if sorted(children) != sorted(expected):
                yield f"{host.name} has the children {children}, not {expected}"
            if host.broker.overlay.link_moves.is_busy:
                yield f"{host.name} is moving a link in the end"
            above, steps = host.name, 0
            while (parent := parents[above]) is not None and steps <= len(parents):
                above, steps = parent, steps + 1
            if steps > len(parents):
                yield f"{host.name} is in a circle"

    def _wrong_tables(self) -> Iterator[str]:
        schedule = self.schedule
        parents = self._parents()
        interest = {f"b{broker}": list(client.filters) for broker, client in self.togglers.items()}
        for broker, topic_filter, _ in schedule.subscribers:
            interest[f"b{broker}"].append(topic_filter)
        advertised = {
            f"b{broker}": [it.removeprefix(ADVERTISE) for it in client.filters]
            for broker, client in self.publishers.items()
        }
        right = oracle.tables(schedule.routing, parents, interest, advertised)
        for host in self.hosts:
            for session in host.broker.overlay.links():
                link = session.link
                assert link is not None
                entries = sorted(entry.filter for entry in link.entries)
                known = sorted(entry.topics for entry in link.advertised if entry.is_advertisement)
                for has, wanted in (
                    (entries, right.entries[host.name, link.peer]),
                    (known, right.advertised[host.name, link.peer]),
                ):
                    if has != wanted:
                        yield f"{host.name} has the entries {has} for {link.peer}, not {wanted}"


def _links_of(host: Host) -> list[Link]:
    return [session.link for session in host.broker.overlay.links() if session.link is not None]


def _toggle(client: Client, topic_filter: str) -> None:
    if topic_filter in client.filters:
        client.unsubscribe(topic_filter)
    else:
        client.subscribe(topic_filter, 1)


def problems(schedule: Schedule, bug: str | None = None) -> list[str]:
    with _planted(bug):
        return Trial(schedule, bug == "acknowledges-first").run()


BUGS = ("keeps-stale-entries", "acknowledges-first", "loses-unsubscriptions")


@contextmanager
def _planted(bug: str | None) -> Iterator[None]:
    """Bugs on purpose, to see that they are found."""
    announce, unwanted = Overlay._announce, Announcements.unwanted
    withdrawn = 0

    def lossy(
        self: Overlay, link: Link, entry: Entry, is_added: bool, kind: str, now_ns: int, cause: Any = None
    ) -> None:
        nonlocal withdrawn
        if not is_added and kind == "unsubscribe":
            withdrawn += 1
            if withdrawn % 3 == 0:
                return
        announce(self, link, entry, is_added, kind, now_ns, cause)

    def nothing(self: Announcements, wanted: dict[Entry, None]) -> list[Entry]:
        del self, wanted
        return []

    if bug == "keeps-stale-entries":
        Announcements.unwanted = nothing  # type: ignore[method-assign]
    elif bug == "loses-unsubscriptions":
        Overlay._announce = lossy  # type: ignore[method-assign]
    try:
        yield
    finally:
        Overlay._announce, Announcements.unwanted = announce, unwanted  # type: ignore[method-assign]
