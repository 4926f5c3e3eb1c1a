"""Random fault schedules in which clients go from broker to broker, and their sessions follow them.

Clients leave one broker and come to another one, at once or after a while, and twice within milliseconds; the old
connection ends, or stays open until it is taken over. Links are cut and broken, brokers killed at any time. What is
judged is the same as in schedules.py; interest is expected where the clients are in the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.moving import AWAY
from brokerbed.orchestrator.simulator.network import Host
from tests.virtual.schedules import ACTIVE_MS, MS, Schedule, Trial, draw

PATIENT_S = 300.0  # longer than all faults, so that clients always get their old session
HASTY_S = 1.0  # they may get a new session, and what the old one had comes later
HASTY_SHARE = 0.25
MOVING_SHARE = 0.15


@dataclass(frozen=True)
class RoamingSchedule(Schedule):
    roams: tuple[
        tuple[int, int, int, int], ...
    ] = ()  # when, which subscriber, to which broker, after how long (-1: the
    # connection so far stays open)
    move_timeout_s: float = PATIENT_S


def draw_roaming(seed: int) -> RoamingSchedule:
    random = Random(f"roaming/{seed}")
    schedule = draw(seed)
    schedule = replace(
        schedule, subscribers=tuple((at, it, random.choice((1, 2, 2))) for at, it, _ in schedule.subscribers)
    )
    fields = {key: getattr(schedule, key) for key in schedule.__dataclass_fields__}
    brokers, subscribers = len(schedule.parents), len(schedule.subscribers)
    moments = sorted(random.randrange(ACTIVE_MS) for _ in range(random.randint(1, 12)))
    if random.random() < 0.5:  # some of them follow one another so quickly that claims race
        moments = sorted([*moments, *(when + random.choice((1, 5, 50)) for when in moments[::2])])
    roams = tuple(
        (when, random.randrange(subscribers), random.randrange(brokers), random.choice((-1, 0, 0, 1, 20, 500, 3000)))
        for when in moments
    )
    fault_ms = 6 * (schedule.commit_ms + schedule.delay_ms) + 10  # about as long as a session is on its way
    fields["faults"] += tuple(
        (when + random.randrange(fault_ms), random.choice(("crash", "crash", "cut", "break")), 1 + random.randrange(brokers - 1),
         random.choice((5, 100, 700)))
        for when, *_ in roams if random.random() < 0.6
    )  # fmt: skip
    if schedule.routing == "peer" or random.random() < MOVING_SHARE:  # links move, too
        moves = [
            (random.randrange(ACTIVE_MS), 1 + random.randrange(brokers - 1), random.randrange(4)) for _ in range(12)
        ]
        fields |= {"routing": "peer", "advertisements": (), "moves": tuple(sorted(moves))}
    return RoamingSchedule(
        **fields, roams=roams, move_timeout_s=HASTY_S if random.random() < HASTY_SHARE else PATIENT_S
    )


class RoamingTrial(Trial):
    schedule: RoamingSchedule

    def __init__(self, schedule: RoamingSchedule, acknowledges_first: bool = False) -> None:
        super().__init__(schedule, acknowledges_first)
        self.homes = [broker for broker, _, _ in schedule.subscribers]

    @property
    def sessions_left(self) -> int:
        """How often sessions have left the brokers, in the last life of each."""
        return sum(host.broker.session_moves.hops for host in self.hosts)

    def _host(self, number: int, acknowledges_first: bool) -> Host:
        host = super()._host(number, acknowledges_first)
        config_of = host._config

        def config(life: int) -> BrokerConfig:
            return replace(config_of(life), move_timeout_s=self.schedule.move_timeout_s)

        host._config = config
        return host

    def run(self) -> list[str]:
        begin_ns = 30_000 * MS
        for when, *what in self.schedule.roams:
            self.loop.at(begin_ns + when * MS, self._roam, tuple(what))
        return super().run()

    def _roam(self, what: tuple[int, int, int]) -> None:
        which, broker, gap_ms = what
        client = self.subscribers[which]
        self.homes[which] = broker
        if gap_ms < 0:
            client._is_wanted = False
            client._lost()
        else:
            client.disconnect()
        client.host = self.hosts[broker]
        self.loop.at(self.loop.now_ns + max(gap_ms, 0) * MS, lambda _: client.connect(), None)

    @property
    def _is_patient(self) -> bool:
        return self.schedule.move_timeout_s == PATIENT_S

    def _wrong_deliveries(self) -> Iterator[str]:
        """A client that does not wait begins anew, so it may miss a message before it has subscribed, or get one again."""
        for problem in super()._wrong_deliveries():
            if self._is_patient or "only" in problem:
                yield problem

    def _wrong_tables(self) -> Iterator[str]:
        if not self._is_patient:  # a connection of which the client has given up may have got a session, too
            return
        given = self.schedule
        homes = zip(self.homes, given.subscribers, strict=True)
        self.schedule = replace(given, subscribers=tuple((home, it, qos) for home, (_, it, qos) in homes))
        yield from super()._wrong_tables()
        self.schedule = given
        yield from self._wrong_sessions()

    def _wrong_sessions(self) -> Iterator[str]:
        """Each session is with its client, whole, and nowhere else."""
        for number, home in enumerate(self.homes):
            name = f"s{number}"
            found = [host.name for host in self.hosts for key in host.broker.sessions if key.split(AWAY)[0] == name]
            if found != [f"b{home}"]:
                yield f"the session of {name}, which is at b{home}, is at {found}"
        for host in self.hosts:
            for key, session in host.broker.sessions.items():
                if session.move is not None:
                    yield f"the session {key!r} at {host.name} is moving in the end: {session.move.row()}"


def roaming_problems(schedule: RoamingSchedule) -> list[str]:
    return RoamingTrial(schedule).run()
