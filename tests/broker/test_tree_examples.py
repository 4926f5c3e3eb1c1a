"""Trees of broker processes: the examples from the papers, a restart anywhere in a chain, and links that are cut."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.broker.relay import DOWN, UP
from tests.broker.tree import CHAIN, Tree
from tests.broker.watched import Processes, Watched
from tests.mqtt.client5 import Client5
from tests.overlay_examples import (
    BINARY,
    FLOOD,
    ILLUSTRATION,
    MUEHL,
    MUEHL_CLIENTS,
    STATIC,
    Crossing,
    difference,
    play,
)

FORK = {"a": None, "b": "a", "c": "b", "d": "a"}  # the link between a and b can be cut
EACH = 10  # messages that a publisher sends

# -- examples from the papers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ILLUSTRATION)
def test_illustration_of_muehl(routing: str) -> None:
    with Tree(MUEHL, routing) as brokers:
        watched = Watched(brokers, routing)
        for qos in (0, 1, 2):
            play(Processes(watched, MUEHL_CLIENTS), ILLUSTRATION[routing], qos)


def test_static_examples_of_van_vliet() -> None:
    with Tree(BINARY) as brokers:
        watched = Watched(brokers, "identity")
        for example in STATIC.values():
            example.play(Processes(watched, example.clients), 1)


def test_static_example_of_van_vliet_flooding_sends_14() -> None:
    with Tree(BINARY, "flooding") as brokers:
        FLOOD.play(Processes(Watched(brokers, "flooding"), FLOOD.clients), 1)


# -- a restart anywhere ------------------------------------------------------------------------------------------------


class Restarted:
    """A chain a - b - c with subscribers at c and b; one broker is killed, interest changes, and it is started again.

    Links that go through a relay are made anew last.
    """

    def __init__(self, brokers: Tree, killed: str) -> None:
        self.tree = brokers
        brokers.until_linked()
        self.bottom, self.middle = brokers.client("c"), brokers.client("b")
        leaver = brokers.client("c")
        self.bottom.subscribe("stays", "goes")
        leaver.subscribe("left")
        self.middle.subscribe("middle")
        brokers.until_entries(a=4, b=3)
        for relay in brokers.relays.values():
            relay.cut()
        brokers.kill(killed)
        if killed != "c":
            self.bottom.unsubscribe("goes")
            leaver.disconnect()
        brokers.start(killed)
        if killed == "b":
            self.middle = self._back("b", "middle")
        if killed == "c":
            self.bottom = self._back("c", "stays")
        for relay in brokers.relays.values():
            relay.heal()
        brokers.until_entries(a=2, b=1)

    def _back(self, broker: str, topic: str) -> Client5:
        """A client whose broker has forgotten it subscribes again."""
        self.tree.until_linked(broker)
        client = self.tree.client(broker)
        client.subscribe(topic)
        return client

    def control(self, link: str) -> dict[str, int]:
        """What was told on a link, by kind."""
        return {
            it.kind: count
            for it, count in self.tree.counts().sent.items()
            if it.link == link and it.kind != "notification"
        }


@pytest.mark.parametrize(
    ("killed", "routing"), [("a", "identity"), ("b", "identity"), ("c", "identity"), ("b", "simple")]
)
def test_restart_anywhere_leaves_interest_complete_and_nothing_stale(killed: str, routing: str) -> None:
    """No refresh is configured: what is right afterwards is so because links were made anew."""
    with Tree(CHAIN, routing) as brokers:
        restarted = Restarted(brokers, killed)
        before = brokers.counts().sent
        publisher = brokers.client("a")
        for topic in ("goes", "left", "stays", "middle"):
            publisher.publish(topic, topic.encode())
        assert restarted.middle.take().payload == b"middle"
        assert restarted.bottom.take().payload == b"stays"
        assert restarted.middle.take_all() == restarted.bottom.take_all() == []
        crossed = difference(brokers.counts().sent, before)
        assert crossed == {Crossing("notification", "a>b"): 2, Crossing("notification", "b>c"): 1}
        _check_cost(restarted, killed)


def _check_cost(restarted: Restarted, killed: str) -> None:
    """On the link that was made anew, what was told on account of it counts as resync and as nothing else."""
    upper, lower = restarted.control("b>a"), restarted.control("c>b")
    if killed == "a":
        assert (upper, lower) == ({"subscribe": 4, "resync": 2}, {"subscribe": 3, "unsubscribe": 2})
    elif killed == "b":
        assert lower == {"subscribe": 3, "resync": 1}
        assert sum(upper.values()) == 2  # "stays" and "middle", once each
    else:
        assert lower == {"subscribe": 1}
        assert sum(upper.values()) == 4 + 3 + 1  # as it was, what c wanted taken back, and what it wants now


@pytest.mark.parametrize(
    ("killed", "relayed", "told"),
    [("b", ["c"], {"subscribe": 1, "resync": 1}), ("c", [], {"subscribe": 4 + 1, "resync": 3})],
)
def test_resynchronisation_counts_as_such_at_every_level(killed: str, relayed: list[str], told: dict[str, int]) -> None:
    """After its own restart b tells anew what c wants, which has not changed; after that of c it takes back what c forgot.

    One subscription more is that of the client which subscribes again.
    """
    with Tree(CHAIN, relayed=relayed) as brokers:
        assert Restarted(brokers, killed).control("b>a") == told


def test_messages_wait_for_the_first_link_of_a_restarted_broker() -> None:
    """b has forgotten that it ever had a link; what it takes from its client and from c waits until there is one."""
    with Tree(CHAIN, relayed=["b"]) as brokers:
        brokers.until_linked()
        top = brokers.client("a")
        top.subscribe("up")
        brokers.relays["b"].cut()
        brokers.kill("b")
        brokers.start("b")
        middle, bottom = brokers.client("b"), brokers.client("c")
        middle.subscribe("up")
        for client, name in ((middle, "b"), (bottom, "c")):
            for payload in payloads(name):
                client.publish("up", payload)
        assert [middle.take().payload for _ in range(2 * EACH)] == payloads("b", "c")
        brokers.relays["b"].heal()
        brokers.until_linked("b")
        middle.publish("up", b"the end")
        assert list(iter(lambda: top.take().payload, b"the end")) == payloads("b", "c")


# -- cut links ---------------------------------------------------------------------------------------------------------


class Fork:
    """A tree whose link between a and b goes through a relay, with one client at each broker that wants everything."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.tree = watched.tree
        self.relay = watched.tree.relays["b"]
        self.clients = {name: self.tree.client(name) for name in FORK}
        for name, client in self.clients.items():
            client.subscribe("t")
            watched.settle(name)
        self._before = watched.counts().sent

    def publish(self, *names: str, qos: int = 1) -> None:
        for name in names:
            for payload in payloads(name):
                self.clients[name].publish("t", payload, qos)

    def take(self, *expected: str, at: str) -> None:
        """Waits until the clients at these brokers have got these publishers' messages, in the order of each."""
        for name in at:
            got = [self.clients[name].take().payload for _ in payloads(*expected)]
            assert sorted(got, key=lambda it: it[:1]) == payloads(*expected)

    def heal(self) -> None:
        """Returns when all that waited or was under way has arrived."""
        self.relay.heal()
        for name in FORK:
            self.watched.settle(name)

    def crossed(self) -> Counter[str]:
        """What crossed the links, which must be notifications, in units of what one publisher sends."""
        found = difference(self.watched.counts().sent, self._before)
        assert all(it.kind == "notification" and count % EACH == 0 for it, count in found.items())
        return Counter({it.link: count // EACH for it, count in found.items()})

    def close(self) -> None:
        self.heal()
        for client in self.clients.values():
            client.disconnect()


def payloads(*publishers: str) -> list[bytes]:
    return [b"%s%02d" % (name.encode(), number) for name in publishers for number in range(EACH)]


@pytest.fixture(scope="module")
def watched_fork() -> Iterator[Watched]:
    with Tree(FORK, relayed=["b"]) as brokers:
        yield Watched(brokers, "identity")


@pytest.fixture
def fork(watched_fork: Watched) -> Iterator[Fork]:
    made = Fork(watched_fork)
    yield made
    made.close()


ALL_ONCE = {"a>b": 2, "b>a": 2, "a>d": 3, "d>a": 1, "b>c": 3, "c>b": 1}  # each publisher's once, and none comes back


def test_cut_link_queues_both_ways_and_loses_nothing(fork: Fork) -> None:
    fork.relay.cut()
    fork.publish("a", "b", "c", "d")
    fork.take("a", "d", at="ad")
    fork.take("b", "c", at="bc")
    assert fork.tree.queued() == {"a": 2 * EACH, "b": 2 * EACH}
    fork.heal()
    fork.take("b", "c", at="ad")
    fork.take("a", "d", at="bc")
    assert fork.tree.queued() == {}
    assert fork.crossed() == ALL_ONCE


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_held_link_goes_on_and_nothing_comes_twice(fork: Fork, qos: int) -> None:
    fork.relay.hold()
    fork.publish("a", "b", "c", "d", qos=qos)
    fork.take("a", "d", at="ad")
    fork.take("b", "c", at="bc")
    fork.heal()
    fork.take("b", "c", at="ad")
    fork.take("a", "d", at="bc")
    assert fork.crossed() == ALL_ONCE


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("parent_notices", [True, False])
def test_what_is_under_way_when_a_link_is_cut_is_sent_again(fork: Fork, qos: int, parent_notices: bool) -> None:
    """It counts as one notification all the same. A child may be back before its parent has noticed the cut."""
    fork.relay.hold()
    fork.publish("a", "b", qos=qos)
    assert fork.crossed() == dict.fromkeys(("a>b", "b>a", "a>d", "b>c"), 1)
    fork.relay.cut(parent_notices=parent_notices)
    fork.publish("c", "d", qos=qos)
    fork.heal()
    fork.take("a", "b", "c", "d", at="abcd")
    assert fork.crossed() == ALL_ONCE


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("origin", "target", "back"), [("b", "a", DOWN), ("a", "b", UP)])
def test_lost_acknowledgements_lose_nothing(fork: Fork, origin: str, target: str, back: str, qos: int) -> None:
    """What arrived is sent again, as the sender cannot know; at QoS 2 nobody notices."""
    fork.relay.hold(back)
    fork.publish(origin, qos=qos)
    fork.take(origin, at=target)
    fork.relay.cut()
    fork.heal()
    again = fork.clients[target].take_all()
    assert again == [] or (qos == 1 and again == payloads(origin))
    fork.take(origin, at=origin)
    assert fork.clients[origin].take_all() == []
    assert fork.crossed()[f"{origin}>{target}"] == 1
    assert fork.crossed()[f"{target}>{origin}"] == 0


def test_only_the_difference_of_interest_travels_when_a_cut_link_is_back(fork: Fork) -> None:
    client, publisher = fork.clients["b"], fork.clients["a"]
    client.subscribe("goes")
    fork.watched.settle("b")
    before = fork.watched.counts()
    fork.relay.cut()
    client.unsubscribe("goes")
    client.subscribe("new", "brief")
    client.unsubscribe("brief")
    fork.heal()
    after = fork.watched.counts()
    assert difference(after.sent, before.sent) == {Crossing("resync", "b>a"): 2}
    assert after.entries == before.entries  # one less, one more
    for topic in ("goes", "brief", "new"):
        publisher.publish(topic, topic.encode())
    fork.watched.settle("a")
    assert client.take_all() == [b"new"]
    assert difference(fork.watched.counts().sent, after.sent) == {Crossing("notification", "a>b"): 1}
