"""Kills brokers under load and looks whether anything that was acknowledged is lost.

The life of a run: the brokers start. The subscribers connect and subscribe, each with a session that never expires. The
publishers publish until every subscriber has got something of everything it wants; from here on all that is
acknowledged must arrive. Again and again a broker is killed at a random instant and started anew on its data, now and
then before it has even answered; meanwhile some subscribers stay away. Everybody reconnects and goes on as MQTT demands.
In the end all come back, the publishers finish what is open, and what is under way arrives. The ledger is judged.

One thread, one selector; the seed gives instants and choices, the rest is up to the machine. Independent of the broker
under test: it may be any that is started by a command and keeps its data over a kill.
"""

import random
import selectors
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.durability.brokers import COMMAND, BrokerProcess, brokerbed_chain, mosquitto
from tests.durability.clients import Client, Publisher, Subscriber
from tests.durability.ledger import Duplicates, Kind, Ledger, Reader, Stream, Violation
from tests.durability.packets import LEVEL_5, LEVEL_311

TICK_S = 0.005  # between two looks at clocks and rates
START_S_MAX = 20.0  # a cold interpreter on a loaded machine
JOIN_S_MAX = 30.0  # until every route stands
DRAIN_S_MAX = 60.0
LINGER_S = 0.4  # after all has arrived, to see whether more does
KILL_S_MAX = 4.0  # a kill with all that follows takes a fraction of this: bounds the whole run
TOPICS = ("load/0/x", "load/1/x", "load/2/x")
RECEIVE_MAXIMUM_SMALL = 10  # of some subscribers, so that messages wait for them at the broker


@dataclass(frozen=True)
class Role:
    """A kind of subscriber. Its filters do not overlap: with overlapping ones a broker may send several copies."""

    filters: Sequence[str]
    qos: int
    level: int
    receive_maximum: int = 65_535


ROLES = (
    Role(("load/#",), 2, LEVEL_5),
    Role(("load/0/x", "load/1/x"), 1, LEVEL_311),
    Role(("load/+/x",), 1, LEVEL_5, RECEIVE_MAXIMUM_SMALL),
    Role(("load/2/x", "load/0/x"), 2, LEVEL_311),
    Role(("load/#",), 1, LEVEL_311),
    Role(("load/1/x",), 2, LEVEL_5, RECEIVE_MAXIMUM_SMALL),
)


@dataclass(frozen=True)
class Plan:
    kills: int
    seed: int = 1
    chain: bool = False  # a - b - c, a the root; else one broker
    durability: str | None = "process"  # None: started without --data and --durability
    routing: str = "identity"
    command: Sequence[str] = COMMAND
    mosquitto: str | None = None  # the path of the program: it is under test instead
    publishers: int = 4
    subscribers: int = 4
    window: int = 16  # messages that a publisher has open
    rate_per_s: float = 800.0  # of one publisher, at most
    load_s: tuple[float, float] = (0.02, 0.2)  # from a broker's answer to the next kill
    early_share: float = 0.1  # of the kills: the broker that has just been started, before it need have answered
    early_s_max: float = 0.4
    away_share: float = 0.25  # of the subscribers: not connected from one kill to the next
    quiet_s: float = 5.0  # nothing arrives for so long: nothing more will
    is_spared: bool = False  # the control: connections are cut instead, and a broker that lives on has to lose nothing
    links_repeat: bool = True  # a link may send a message at QoS 1 again, without DUP towards the subscriber


@dataclass
class Result:
    kills: int = 0
    early_kills: int = 0  # of these, before the broker answered
    published: int = 0
    acknowledged: int = 0
    resent: int = 0  # by publishers
    owed: int = 0  # deliveries, for what was acknowledged
    delivered: int = 0  # of these and of messages that were not acknowledged, counted once
    repeated: int = 0  # sent again by the broker at QoS 2 and recognised by the subscriber
    duplicates: Duplicates = field(default_factory=Duplicates)
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    def count(self, kind: Kind) -> int:
        return sum(it.count for it in self.violations if it.kind is kind)

    def __str__(self) -> str:
        wrong: Counter[str] = Counter()
        for it in self.violations:
            wrong[it.kind.name] += it.count
        return (
            f"{self.kills} kills ({self.early_kills} while starting) in {self.seconds:.1f} s; "
            f"published {self.published}, acknowledged {self.acknowledged}, sent again {self.resent}; "
            f"deliveries owed {self.owed}, made {self.delivered}, lost {self.count(Kind.LOST)}; "
            f"QoS 1 duplicates: {self.duplicates.marked} with DUP, {self.duplicates.publisher} by publishers, "
            f"{self.duplicates.links} by links; QoS 2 sent again {self.repeated}; "
            f"violations: {', '.join(f'{kind} {count}' for kind, count in wrong.items()) or 'none'}"
        )


class _StoppedError(Exception):
    """The run cannot go on; the ledger knows why."""


class Run:
    def __init__(self, plan: Plan, folder: Path, progress: Callable[[Result], None] = lambda _: None) -> None:
        self._plan = plan
        self._progress = progress
        self._draw = random.Random(plan.seed)
        self._selector = selectors.DefaultSelector()
        self._brokers = _brokers(plan, folder)
        places = [it.name for it in self._brokers]
        assert plan.publishers >= len(places), "a broker without a publisher would not be seen to answer"
        streams = [
            Stream(f"p{number}", topic, qos, places[number % len(places)], index)
            for index, (number, topic, qos) in enumerate(
                (number, topic, qos) for number in range(plan.publishers) for topic in TOPICS for qos in (1, 2)
            )
        ]
        roles = [ROLES[number % len(ROLES)] for number in range(plan.subscribers)]
        readers = [
            Reader(f"s{number}", role.filters, role.qos, places[number % len(places)])
            for number, role in enumerate(roles)
        ]
        self._ledger = Ledger(streams, readers, plan.links_repeat)
        self._publishers = [self._publisher(number, streams) for number in range(plan.publishers)]
        self._subscribers = [self._subscriber(*it) for it in enumerate(zip(readers, roles, strict=True))]
        self._clients: list[Client] = [*self._publishers, *self._subscribers]
        self._kills = self._early_kills = 0
        self._began = time.monotonic()

    def execute(self) -> Result:
        """Runs from start to end, stops everything whatever happens, and returns what was found."""
        try:
            with ExitStack() as running:
                running.callback(self._selector.close)
                for broker in self._brokers:
                    running.callback(broker.stop)
                    broker.start()
                for client in self._clients:
                    running.callback(client.rest)
                self._join()
                self._kill_all()
                self._drain()
        except _StoppedError:
            pass
        result = self._counts()
        result.duplicates, result.violations = self._ledger.duplicates(), self._ledger.violations()
        return result

    # -- the parts of a run -------------------------------------------------------------------------------------

    def _join(self) -> None:
        self._until(lambda: all(it.is_idle() for it in self._subscribers), START_S_MAX, "subscribing")
        self._publishing(True)
        self._until(self._ledger.is_joined, JOIN_S_MAX, "the first message on every route")
        self._ledger.promise()

    def _kill_all(self) -> None:
        plan, draw = self._plan, self._draw
        last = self._brokers[0]
        while self._kills < plan.kills:
            if self._kills and draw.random() < plan.early_share:
                self._early_kills += 1
                self._pass(draw.uniform(0, plan.early_s_max))
            else:
                self._await(last)
                self._pass(draw.uniform(*plan.load_s))
                last = draw.choice(self._brokers)
            self._kill(last)
            self._send_away()
            self._progress(self._counts())
        self._await(last)

    def _drain(self) -> None:
        for subscriber in self._subscribers:
            subscriber.wake()
        self._pass(self._plan.load_s[0])
        self._publishing(False)
        self._until(self._is_done, DRAIN_S_MAX, "what was under way")
        self._pass(LINGER_S)
        for publisher in self._publishers:
            if publisher.open_messages():
                self._ledger.note(Kind.UNFINISHED, publisher.name, f"{publisher.open_messages()} messages open")

    def _is_done(self) -> bool:
        if not all(it.is_connected for it in self._clients):
            return False
        if self._ledger.is_settled():
            return all(it.is_idle() for it in self._publishers) and all(it.is_idle() for it in self._subscribers)
        return time.monotonic() - max(it.last_at for it in self._subscribers) > self._plan.quiet_s

    # -- small steps --------------------------------------------------------------------------------------------

    def _await(self, broker: BrokerProcess) -> None:
        """Until the broker has accepted one of its publishers."""
        own = [it for it in self._publishers if it.broker is broker]
        what = f"broker {broker.name} answering"
        self._until(lambda: any(it.is_connected for it in own), START_S_MAX, what, Kind.ENDED)

    def _kill(self, broker: BrokerProcess) -> None:
        self._kills += 1
        if not self._plan.is_spared:
            broker.kill()
            self._killed(broker)
            broker.start()
            return
        for client in self._clients:
            if client.broker is broker:
                client.cut()

    def _killed(self, broker: BrokerProcess) -> None:
        """For those who want to look at what it has left."""

    def _publishing(self, is_publishing: bool) -> None:
        for publisher in self._publishers:
            publisher.is_publishing = is_publishing

    def _send_away(self) -> None:
        for subscriber in self._subscribers:
            if self._draw.random() < self._plan.away_share:
                subscriber.rest()
            else:
                subscriber.wake()

    def _until(self, is_so: Callable[[], bool], seconds: float, what: str, kind: Kind = Kind.UNFINISHED) -> None:
        """Lets everybody work until it is so; after so many seconds the run is over."""
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                self._ledger.note(kind, "run", f"{what}, within {seconds:g} s")
                raise _StoppedError
            self._step(TICK_S)

    def _pass(self, seconds: float) -> None:
        """Lets everybody work for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._step(min(TICK_S, left))

    def _step(self, seconds: float) -> None:
        for key, mask in self._selector.select(seconds):
            key.data.ready(mask)
        now = time.monotonic()
        for client in self._clients:
            client.tick(now)
        for broker in self._brokers:
            if not broker.is_running():
                self._ledger.note(Kind.ENDED, broker.name, broker.story())
                raise _StoppedError
        if now > self._began + START_S_MAX + JOIN_S_MAX + DRAIN_S_MAX + KILL_S_MAX * self._plan.kills:
            self._ledger.note(Kind.UNFINISHED, "run", f"{self._plan.kills} kills in {now - self._began:.0f} s")
            raise _StoppedError

    def _publisher(self, number: int, streams: list[Stream]) -> Publisher:
        name, broker = f"p{number}", self._brokers[number % len(self._brokers)]
        own = [it for it in streams if it.publisher == name]
        draw = random.Random(f"{self._plan.seed} {name}")
        level = LEVEL_5 if number // len(self._brokers) % 2 else LEVEL_311
        return Publisher(
            name, level, broker, self._selector, self._ledger, own, self._plan.window, self._plan.rate_per_s, draw
        )

    def _subscriber(self, number: int, what: tuple[Reader, Role]) -> Subscriber:
        reader, role = what
        broker = self._brokers[number % len(self._brokers)]
        made = Subscriber(reader, role.level, broker, self._selector, self._ledger)
        made.receive_maximum = role.receive_maximum
        return made

    def _counts(self) -> Result:
        ledger = self._ledger
        return Result(
            kills=self._kills,
            early_kills=self._early_kills,
            published=ledger.published_messages(),
            acknowledged=ledger.acknowledged_messages(),
            resent=ledger.resent_messages(),
            owed=ledger.expected(),
            delivered=ledger.delivered(),
            repeated=sum(it.repeated for it in self._subscribers),
            seconds=time.monotonic() - self._began,
        )


def _brokers(plan: Plan, folder: Path) -> list[BrokerProcess]:
    if plan.mosquitto is not None:
        return [mosquitto(folder, plan.mosquitto)]
    return brokerbed_chain(folder, "abc" if plan.chain else "a", plan.durability, plan.routing, plan.command)


def run(plan: Plan, folder: Path, progress: Callable[[Result], None] = lambda _: None) -> Result:
    """Executes the plan with the brokers' data in the folder."""
    return Run(plan, folder, progress).execute()
