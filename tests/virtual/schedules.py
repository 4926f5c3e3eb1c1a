"""Random fault schedules on simulated networks: run, judged, and shrunk to the smallest that still fails.

A schedule says everything: the tree, who subscribes and publishes when, what breaks when and for how long. After the last
fault everything heals; then every acknowledged message must have reached every subscription that was there
throughout, in order per publisher and topic, at QoS 2 once, and every routing table must be as defined.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.announcements import Announcements
from brokerbed.broker.core.link import Link
from brokerbed.broker.core.overlay import Overlay
from brokerbed.broker.values import NS_PER_S, Entry
from brokerbed.orchestrator.simulator.clients import Client
from brokerbed.orchestrator.simulator.link_schedule import Quality
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.network import Host, Uplink
from brokerbed.orchestrator.simulator.wire import NO_DELAY
from brokerbed.topics import ADVERTISE, matches
from tests import routing_oracle as oracle

MS = 1_000_000
TOPICS = ("a/1", "a/2", "b/1")
FILTERS = ("a/1", "a/2", "b/1", "a/c", "a/+", "a/#", "+/1", "#")
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
    size = random.randint(3, 15)

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

    def __init__(self, schedule: Schedule, acknowledges_first: bool = False) -> None:
        self.schedule = schedule
        self.loop = Loop()
        self.hosts = [self._host(number, acknowledges_first) for number in range(len(schedule.parents))]
        quality = NO_DELAY if schedule.delay_ms == 0 else Quality(lambda: schedule.delay_ms * MS)
        self.links = {
            child: Uplink(self.hosts[child], self.hosts[parent], quality, quality)
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

        def config(life: int) -> BrokerConfig:
            return BrokerConfig(
                name=f"b{number}", incarnation=str(life), id_token=f"{number}/{life}", routing=schedule.routing,
                keep_alive_max_s=0, refresh_s=schedule.refresh_s,
            )  # fmt: skip

        host = Host(
            self.loop, f"b{number}", config, f"b{parent}" if parent >= 0 else None, is_durable=True,
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
        for when, broker, topic_filter in self.schedule.toggles:
            self.loop.at(begin_ns + when * MS, self._toggle, (broker, topic_filter))
        for when, broker, topic_filter in self.schedule.advertisements:
            self.loop.at(begin_ns + when * MS, self._advertise, (broker, topic_filter))
        for when, broker, topic, qos in self.schedule.publications:
            self.loop.at(begin_ns + when * MS, self._publish, (broker, topic, qos))
        for when, what, which, lasts in self.schedule.faults:
            self.loop.at(begin_ns + when * MS, self._strike, (what, which, lasts))
        lasts_ms = max([ACTIVE_MS, *(when + lasts for when, _, _, lasts in self.schedule.faults)])
        if not self._calm(begin_ns + lasts_ms * MS + CALM_NS):
            return ["it does not come to rest"]
        return [*self._wrong_deliveries(), *self._wrong_tables()]

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
        return lambda: link.repair(*ways)

    def _crash(self, host: Host) -> Callable[[], None] | None:
        if not host.is_up:
            return None
        host.crash()
        return host.start

    # -- the judgement ----------------------------------------------------------------------------------------

    def _wrong_deliveries(self) -> Iterator[str]:
        acked = [payload for publisher in self.publishers.values() for payload in publisher.acked]
        if len(acked) < len(self.schedule.publications):
            yield f"only {len(acked)} of {len(self.schedule.publications)} publications were acknowledged"
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

    def _wrong_tables(self) -> Iterator[str]:
        schedule = self.schedule
        parents = {f"b{child}": f"b{parent}" if parent >= 0 else None for child, parent in enumerate(schedule.parents)}
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


# -- shrinking --------------------------------------------------------------------------------------------------------


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The smallest schedule on the way that still fails: fewer faults, clients, messages and brokers."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(schedule):
            if fails(smaller):
                schedule, is_smaller = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for field in ("publications", "toggles", "advertisements", "faults", "subscribers"):
        items = getattr(schedule, field)
        size = len(items) // 2
        while size >= 1:  # halves first, then single ones
            for start in range(0, len(items), size):
                less = items[:start] + items[start + size :]
                if field != "subscribers" or not any(what == "disconnect" for _, what, _, _ in schedule.faults):
                    yield replace(schedule, **{field: less})
            size //= 2
        if len(items) == 1 and field != "subscribers":
            yield replace(schedule, **{field: ()})  # type: ignore[arg-type]
    for broker in range(len(schedule.parents) - 1, 0, -1):
        smaller = _without(schedule, broker)
        if smaller is not None:
            yield smaller
    if schedule.delay_ms:
        yield replace(schedule, delay_ms=0)
    if schedule.refresh_s:
        yield replace(schedule, refresh_s=0)


def _without(schedule: Schedule, broker: int) -> Schedule | None:
    """Without a broker that nothing happens at; its children move up to its parent."""
    changes = (*schedule.toggles, *schedule.advertisements, *schedule.publications)
    at = {it[0] for it in schedule.subscribers} | {it[1] for it in changes}
    at |= {which for _, what, which, _ in schedule.faults if what != "disconnect"}
    if broker in at:
        return None

    def moved(number: int) -> int:
        return number - (number > broker)

    parents = [schedule.parents[broker] if it == broker else it for it in schedule.parents]
    del parents[broker]
    return replace(
        schedule,
        parents=tuple(map(moved, parents)),
        subscribers=tuple((moved(it), topic_filter, qos) for it, topic_filter, qos in schedule.subscribers),
        toggles=tuple((when, moved(it), topic_filter) for when, it, topic_filter in schedule.toggles),
        advertisements=tuple((when, moved(it), topic_filter) for when, it, topic_filter in schedule.advertisements),
        publications=tuple((when, moved(it), topic, qos) for when, it, topic, qos in schedule.publications),
        faults=tuple(
            (when, what, which if what == "disconnect" else moved(which), lasts)
            for when, what, which, lasts in schedule.faults
        ),
    )


TEMPLATE = '''"""A fault schedule that failed: {first}"""

from tests.virtual.schedules import Schedule, problems

SCHEDULE = """
{schedule}
"""


def test_schedule() -> None:
    assert problems(Schedule.read(SCHEDULE), {bug!r}) == []
'''


def as_test(schedule: Schedule, bug: str | None) -> str:
    """A ready pytest file."""
    first = problems(schedule, bug)[0].replace('"', "'")
    return TEMPLATE.format(first=first, schedule=schedule.written(), bug=bug)
