"""Links that move while messages flow: nothing is lost, delivered twice or out of order, and the tables are right.

`python -m tests.virtual.campaign --moves` runs more schedules with faults.
"""

from collections import defaultdict
from itertools import islice
from random import Random

import pytest

from brokerbed.broker.core import session_end
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.link_moves import LinkMoves
from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.runtime.metrics import BrokerCollector
from brokerbed.broker.values import NS_PER_S, Message, Published
from brokerbed.orchestrator.simulator.clients import Client
from brokerbed.topics import matches
from tests.virtual.schedules import FILTERS, TOPICS, Schedule, Trial, draw_moving, problems

SCHEDULES = 100
MOVES_PER_SCHEDULE_MIN = 2  # begun, on average, besides those that brokers begin by themselves


def test_random_schedules_with_faults_end_well() -> None:
    begun = 0
    for seed in range(SCHEDULES):
        trial = Trial(draw_moving(seed))
        assert trial.run() == [], seed
        begun += trial.moves_begun
    assert begun > SCHEDULES * MOVES_PER_SCHEDULE_MIN


ROUTINGS = [name for name, algorithm in ALGORITHMS.built_in.items() if algorithm.lets_links_move]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("service_us", [0, 500])
@pytest.mark.parametrize("seed", range(4))
def test_every_message_arrives_once_at_every_qos(seed: int, service_us: int, routing: str) -> None:
    """Without faults this holds at QoS 0, too. Messages come so fast that some are under way at each step of a move."""
    random = Random(f"stream/{seed}")
    size = 8
    schedule = Schedule(
        parents=(-1, *(random.randrange(child) for child in range(1, size))),
        routing=routing,
        subscribers=tuple((broker, random.choice(FILTERS), 2) for broker in range(size)),
        advertisements=((0, 0, "a/+"), (300, size - 1, "b/1"), (500, 0, "b/1"), (700, 0, "a/+")),
        toggles=(),
        publications=tuple(
            (when, broker, random.choice(TOPICS), random.choice((0, 1, 2)))
            for when in range(0, 1000, 4)
            for broker in (0, size - 1)
        ),
        faults=(),
        commit_ms=1,
        delay_ms=random.choice((0, 3)),
        moves=tuple((when, random.randrange(1, size), random.randrange(4)) for when in range(5, 1000, 30)),
        service_us=service_us,
    )
    trial = Trial(schedule)
    assert trial.run() == []
    assert trial.moves_begun >= 10
    published: dict[str, int] = defaultdict(int)
    for _, broker, topic, qos in schedule.publications:
        published[f"{broker} {topic} {qos}"] += 1
    for client, (_, topic_filter, _) in zip(trial.subscribers, schedule.subscribers, strict=True):
        got: dict[str, list[int]] = defaultdict(list)
        for payload, _ in client.got:
            stream, _, number = payload.decode().rpartition(" ")
            got[stream].append(int(number))
        wanted = [stream for stream in published if matches(topic_filter, stream.split()[1])]
        assert got == {stream: list(range(1, published[stream] + 1)) for stream in wanted}


@pytest.mark.parametrize("step", ["_left", "_adopt", "_adopted", "_switched", "_go", "_arrived"])
@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_fault_at_every_step(
    step: str, victim: int, is_cut: bool, routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b2 moves from b1 to the root. When a step has been made, one of the three is killed or its links are cut."""
    schedule = Schedule(
        parents=(-1, 0, 1), routing=routing, subscribers=tuple((broker, "#", 2) for broker in range(3)), toggles=(),
        advertisements=((0, 0, "a/1"), (0, 2, "a/1"), (1001, 1, "a/1")),
        publications=tuple((when, broker, "a/1", 2) for when in range(0, 2000, 7) for broker in range(3)), faults=(),
        moves=((1000, 2, 0),), commit_ms=2, delay_ms=5,
    )  # fmt: skip
    trial = Trial(schedule)
    struck: list[str] = []
    original = getattr(LinkMoves, step)

    def strike(_: object) -> None:
        name = trial.hosts[victim].name
        children = [child for child, link in trial.links.items() if name in (link.child.name, link.parent.name)]
        for what, which in [("cut", child) for child in children] if is_cut else [("crash", victim)]:
            trial._strike((what, which, 700))

    def struck_after(self: LinkMoves, *arguments: object) -> None:
        original(self, *arguments)
        if not struck:
            struck.append(step)
            trial.loop.at(trial.loop.now_ns, strike, None)

    monkeypatch.setattr(LinkMoves, step, struck_after)
    assert trial.run() == []
    assert struck == [step]
    assert trial.links[2].parent.name == "b0"


def test_moves_are_counted_by_the_broker_that_gets_another_parent() -> None:
    schedule = Schedule(
        parents=(-1, 0, 1), routing="peer", subscribers=(), toggles=(), publications=(), faults=(),
        moves=((300, 2, 0), (600, 2, 0)), commit_ms=1, delay_ms=1,
    )  # fmt: skip
    trial = Trial(schedule)
    assert trial.run() == []
    assert trial.moves_begun == 2
    assert [host.broker.counters.moves for host in trial.hosts] == [0, 0, 2]
    (metric,) = (it for it in islice(BrokerCollector(trial.hosts[2].broker).collect(), 9) if "moves" in it.name)
    assert [(it.name, it.value) for it in metric.samples] == [("brokerbed_placement_moves_total", 2)]


def test_two_opposite_moves_over_one_link() -> None:
    """Found by random schedules: while b1 handed a child to b2, b2 handed one to b1, and messages were doubled."""
    schedule = Schedule(
        parents=(-1, 0, 1, 2, 1), routing="peer", subscribers=((3, "#", 2), (4, "#", 2)), toggles=(),
        publications=tuple((when, broker, "a/1", 2) for when in range(0, 1000, 5) for broker in (1, 2)), faults=(),
        moves=((300, 3, 0), (300, 4, 1), (600, 4, 1), (800, 3, 0)), commit_ms=2, delay_ms=20,
    )  # fmt: skip
    assert problems(schedule) == []


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("seed", range(6))
def test_later_subscribers_get_retained_messages_wherever_links_have_moved(seed: int, routing: str) -> None:
    """Retained messages climb to the root, and a broker has those of the filters that it has announced to its parent.

    A child takes its filters along to its next parent, which must have what was retained before.
    """
    random = Random(f"retained/{seed}")
    size = 6
    schedule = Schedule(
        parents=(-1, *(random.randrange(child) for child in range(1, size))), routing=routing,
        subscribers=tuple((random.randrange(size), random.choice(FILTERS), 1) for _ in range(4)), toggles=(),
        publications=(), faults=(), delay_ms=random.choice((0, 5)),
    )  # fmt: skip
    trial = Trial(schedule)
    sources = [Client(trial.loop, host, f"source/{host.name}") for host in trial.hosts]
    late: dict[tuple[int, str], list[tuple[str, bytes]]] = {}
    kept: dict[str, bytes] = {}

    def connect(client: Client) -> None:
        client.connect()

    def retain(number: int) -> None:
        topic, broker = random.choice(TOPICS), random.randrange(size)
        kept[topic] = b"%d" % number
        publish_retained(sources[broker], topic, kept[topic])

    def subscribe(place: tuple[int, str]) -> None:
        broker, topic_filter = place
        got = late[broker, topic_filter] = []
        client = Client(trial.loop, trial.hosts[broker], f"late/{broker}/{topic_filter}")
        client.received = lambda topic, payload, *_: got.append((topic, payload))
        client.connect()
        client.subscribe(topic_filter, 1)

    begin_ns = 30 * NS_PER_S
    for source in sources:
        trial.loop.at(begin_ns - NS_PER_S, connect, source)
    for number in range(20):
        trial.loop.at(begin_ns + number * NS_PER_S, retain, number)
        trial.loop.at(
            begin_ns + number * NS_PER_S + NS_PER_S // 2,
            trial._move, (random.randrange(1, size), random.randrange(4)),
        )  # fmt: skip
    places = [(broker, topic_filter) for broker in range(size) for topic_filter in FILTERS]
    random.shuffle(places)
    for number, place in enumerate(places):  # one after the other: each changes what its broker has
        trial.loop.at(begin_ns + (30 + number) * NS_PER_S, subscribe, place)
    assert all("entries" in problem for problem in trial.run())  # of the late ones, which the schedule does not know
    assert trial.moves_begun >= 5
    for (_, topic_filter), got in late.items():
        assert sorted(got) == sorted((topic, kept[topic]) for topic in kept if matches(topic_filter, topic))
    assert len(late) == len(places)


def test_a_child_that_has_left_announces_nothing_to_its_old_parent() -> None:
    """Found by random schedules: after a cut, b2 withdrew an advertisement of which it was not certain, left b1, and
    advertised again, which b0 never heard of."""
    schedule = Schedule(
        parents=(-1, 0, 1), routing="peer-advertisement", subscribers=((2, "a/2", 1),), toggles=(), publications=(),
        faults=((2137, "cut-down", 2, 40000),), commit_ms=0, advertisements=((8184, 2, "a/+"),), moves=((6929, 2, 2),),
    )  # fmt: skip
    assert problems(schedule) == []


def test_a_child_that_has_not_answered_owes_the_answer_to_its_next_parent() -> None:
    """Found by random schedules: b0 took the advertisement of b1 for answered when b2 had gone, without its interest."""
    schedule = Schedule(
        parents=(-1, 0, 0, 0, 2), routing="peer-advertisement", subscribers=((4, "+/1", 1),), toggles=(), faults=(),
        publications=((8840, 1, "b/1", 2),), commit_ms=500, advertisements=((2830, 1, "+/1"),), moves=((3245, 2, 1),),
    )  # fmt: skip
    assert problems(schedule) == []


def test_a_broker_does_not_remember_a_child_that_has_left_before_its_connection_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by moves of real brokers under load: b1 hears that b2 has arrived at b0, then that the old connection has
    ended, and is killed. Then it had a child again that was moving for ever."""
    schedule = Schedule(
        parents=(-1, 0, 1), routing="peer", subscribers=((2, "#", 1),), toggles=(), publications=((2, 0, "a/1", 1),),
        faults=((5000, "crash", 1, 100),), moves=((1000, 2, 0),), commit_ms=1, delay_ms=1,
    )  # fmt: skip
    trial = Trial(schedule)
    original = session_end.connection_ended

    def ended_later(broker: Broker, connection: Connection, now_ns: int) -> None:
        is_old = broker is trial.hosts[1].broker and connection.session is broker.links.get("$link/b2")
        if is_old and not late:
            late.append(now_ns)
            trial.loop.at(now_ns + 2 * NS_PER_S, end, connection)
        else:
            original(broker, connection, now_ns)

    def end(connection: Connection) -> None:
        original(trial.hosts[1].broker, connection, trial.loop.now_ns)
        trial.hosts[1].flush()

    late: list[int] = []
    monkeypatch.setattr(session_end, "connection_ended", ended_later)
    assert trial.run() == []
    assert late
    assert trial.links[2].parent.name == "b0"


def publish_retained(client: Client, topic: str, payload: bytes) -> None:
    packet_id = client._take_id()
    message = Message(topic, payload, 1, True, None)
    client._unacknowledged[packet_id] = publication = Published(message, 1, True, packet_id, False)
    client._send(publication)
