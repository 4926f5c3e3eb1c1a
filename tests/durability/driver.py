"""Kills brokers under load and looks whether anything that was acknowledged is lost.

The life of a run: the brokers start. The subscribers connect and subscribe, most with a session that never expires. The
publishers publish until every subscriber has got something of everything it wants; from here on all that is
acknowledged must arrive. Again and again a broker is killed at a random instant and started anew on its data, now and
then before it has even answered; meanwhile some subscribers stay away, and sessions of others end. Everybody reconnects
and goes on as MQTT demands. In the end all come back, the publishers finish what is open, and what is under way arrives.
At each broker a new subscriber looks at what is retained. The ledger is judged.

One thread, one selector; the seed gives instants and choices, the rest is up to the machine. Independent of the broker
under test: it may be any that is started by a command and keeps its data over a kill.
"""

import random
import selectors
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.durability.brokers import BrokerProcess, brokerbed_chain, mosquitto
from tests.durability.clients import Client, Publisher, Subscriber
from tests.durability.ledger import Duplicates, Kind, Ledger, Reader, Stream, Violation
from tests.durability.packets import LEVEL_5, LEVEL_311
from tests.durability.plan import Plan, Role
from tests.durability.visitors import Visitor

TICK_S = 0.005  # between two looks at clocks and rates
START_S_MAX = 20.0  # a cold interpreter on a loaded machine
JOIN_S_MAX = 30.0  # until every route stands
DRAIN_S_MAX = 60.0
LINGER_S = 0.4  # after all has arrived, to see whether more does
KILL_S_MAX = 4.0  # a kill with all that follows takes a fraction of this: bounds the whole run


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
    sessions_ended: int = 0
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
            f"deliveries owed {self.owed}, made {self.delivered}; {self.sessions_ended} sessions ended; "
            f"QoS 1 duplicates: {self.duplicates.marked} with DUP, {self.duplicates.publisher} by publishers, "
            f"{self.duplicates.links} by links; QoS 2 sent again {self.repeated}; "
            f"acknowledged and lost {self.count(Kind.LOST)}, doubled at QoS 0 or 2 {self.count(Kind.TWICE)}, "
            f"out of order {self.count(Kind.DISORDER)}, retained and lost {self.count(Kind.STALE)}, "
            f"stores set aside {self.count(Kind.DAMAGED)}; "
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
        self._brokers = self._processes(plan, folder)
        places = [it.name for it in self._brokers]
        assert plan.publishers >= len(places), "a broker without a publisher would not be seen to answer"
        streams, readers, auditors = plan.streams(places), plan.readers(places), plan.auditors(places)
        self._ledger = Ledger(streams, [reader for reader, _ in (*readers, *auditors)], plan.links_repeat)
        self._publishers = [self._publisher(number, streams) for number in range(plan.publishers)]
        self._subscribers = [self._subscriber(reader, role) for reader, role in readers]
        self._auditors = [(reader, self._subscriber(reader, role)) for reader, role in auditors]
        self._clients: list[Client] = [*self._publishers, *self._subscribers]
        self._folder = folder
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
                for client in (*self._clients, *(auditor for _, auditor in self._auditors)):
                    running.callback(client.rest)
                self._join()
                self._kill_all()
                self._drain()
                self._audit()
        except _StoppedError:
            pass
        for broker in self._brokers:
            for name in broker.stores_set_aside(self._folder):
                self._ledger.note(Kind.DAMAGED, broker.name, name)
        result = self._counts()
        result.duplicates, result.violations = self._ledger.duplicates(), self._ledger.violations()
        return result

    def _processes(self, plan: Plan, folder: Path) -> list[BrokerProcess]:
        """The brokers, which do not run yet."""
        if plan.mosquitto is not None:
            return [mosquitto(folder, plan.mosquitto)]
        return brokerbed_chain(folder, "abc" if plan.chain else "a", plan.durability, plan.routing, plan.command)

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

    def _audit(self) -> None:
        """Whether the last retained message of every topic is there."""
        for _, auditor in self._auditors:
            self._clients.append(auditor)
        end = time.monotonic() + self._plan.quiet_s
        while time.monotonic() < end and any(self._ledger.missing_retained(reader) for reader, _ in self._auditors):
            self._step(TICK_S)
        for reader, _ in self._auditors:
            for missing in self._ledger.missing_retained(reader):
                self._ledger.note(Kind.STALE, reader.name, missing)

    def _is_done(self) -> bool:
        if not all(it.is_connected for it in self._clients):
            return False
        if self._ledger.is_settled():
            return all(it.is_idle() for it in self._clients)
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
            if isinstance(subscriber, Visitor) and self._draw.random() < self._plan.ending_share:
                subscriber.end_session()
            elif self._draw.random() < self._plan.away_share:
                subscriber.rest()
            else:
                subscriber.wake()

    def _until(self, is_so: Callable[[], bool], seconds: float, what: str, kind: Kind = Kind.UNFINISHED) -> None:
        """Lets everybody work until it is so; after so many seconds the run is over."""
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                busy = [f"{it.name} ({it.state()})" for it in self._clients if not it.is_idle()]
                self._ledger.note(kind, "run", f"{what}, within {seconds:g} s; busy: {', '.join(busy) or 'nobody'}")
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

    def _subscriber(self, reader: Reader, role: Role) -> Subscriber:
        broker = next(it for it in self._brokers if it.name == reader.place)
        if role.ending is None:
            made = Subscriber(reader, role.level, broker, self._selector, self._ledger)
        else:
            made = Visitor(reader, role.level, broker, self._selector, self._ledger, role.ending)
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
            sessions_ended=ledger.sessions_ended,
            seconds=time.monotonic() - self._began,
        )


def run(plan: Plan, folder: Path, progress: Callable[[Result], None] = lambda _: None) -> Result:
    """Executes the plan with the brokers' data in the folder."""
    return Run(plan, folder, progress).execute()
