"""A network of real brokers under a test's control: what each verb does is seen from outside, by clients."""

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.testing import BrokerNetwork
from tests.broker.running import until
from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial

KEPT = {"clean_start": False, "session_expiry_interval": 3600}
TREE = {"root": None, "a": "root", "b": "root"}
SILENCE_S = 0.2  # long for what would come in a millisecond


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.needs("docker"))])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[BrokerNetwork]:
    with BrokerNetwork(TREE, folder=tmp_path_factory.mktemp("network"), on=request.param) as network:
        yield network


@pytest.fixture
def network(running: BrokerNetwork) -> Iterator[BrokerNetwork]:
    yield running
    assert {running.state(name) for name in TREE} == {"serving"}  # each test leaves it whole


@contextmanager
def client(network: BrokerNetwork, broker: str, client_id: str | None = None, **options: Any) -> Iterator[Client5]:
    host, port = network.address(broker)
    assert host == "127.0.0.1"
    dial = Dial(port)
    try:
        yield dial.v5(client_id, **options)
    finally:
        dial.close()


def is_silent(it: Client5) -> bool:
    it.socket.settimeout(SILENCE_S)
    try:
        return not it.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True


def test_calm_network_knows_of_a_subscription_everywhere(network: BrokerNetwork) -> None:
    """Else what is published at QoS 0 elsewhere would not get there."""
    with client(network, "a") as subscriber, client(network, "b") as publisher:
        subscriber.subscribe("topic")
        network.wait_until_calm()
        publisher.publish("topic", b"1", qos=0)
        assert subscriber.take().payload == b"1"


def test_calm_waits_for_interest_and_messages_on_a_slow_link(tmp_path: Path) -> None:
    delay = {"mean": f"{4 * SILENCE_S}s", "law": "deterministic"}
    links = [{"between": ["root", "a"], "delay": delay}]
    with (
        BrokerNetwork({"root": None, "a": "root"}, folder=tmp_path, links=links) as slow,
        client(slow, "a") as subscriber,
        client(slow, "root") as publisher,
    ):
        subscriber.subscribe("topic")
        slow.wait_until_calm()
        publisher.publish("topic", b"1", qos=0)
        slow.wait_until_calm()
        assert not is_silent(subscriber)
        assert subscriber.take().payload == b"1"


def test_messages_for_an_absent_client_wait_and_the_network_is_calm(network: BrokerNetwork) -> None:
    with client(network, "a", "absent", **KEPT) as subscriber:
        subscriber.subscribe("news")
        network.wait_until_calm()
        subscriber.disconnect()
    with client(network, "b") as publisher:
        for _ in range(3):
            publisher.publish("news", b"x")
    network.wait_until_calm()
    assert [network.under_way(name) for name in TREE] == [0, 3, 0]
    with client(network, "a", "absent", clean_start=True):
        pass


def test_network_is_not_calm_while_a_client_does_not_acknowledge(network: BrokerNetwork) -> None:
    with client(network, "a") as subscriber:
        subscriber.subscribe("slow")
        network.wait_until_calm()
        with client(network, "a") as publisher:
            publisher.publish("slow", b"x")
        with pytest.raises(GroundError, match=r"did not come to rest within 0\.3 s: 1 under way at a"):
            network.wait_until_calm(0.3)


def test_nothing_is_lost_that_waits_over_crashes_and_cuts(network: BrokerNetwork) -> None:
    with client(network, "a", "reader", **KEPT) as subscriber:
        subscriber.subscribe("letters")
        network.wait_until_calm()
        subscriber.disconnect()
    with client(network, "b", "writer") as publisher:
        network.cut("a", "root")
        for number in range(3):
            publisher.publish("letters", b"%d" % number)
        network.crash("root")
        network.pause("b")
        network.heal()
        network.assert_nothing_lost()
    assert network.under_way("a") == 3
    with client(network, "a", "reader", clean_start=True):  # who ends a session does not want what waited in it
        pass
    network.assert_nothing_lost()


def test_messages_that_a_broker_forgets_in_a_crash_are_named_as_lost(tmp_path: Path) -> None:
    with BrokerNetwork({"alone": None}, folder=tmp_path, durability="memory") as forgetful:
        with client(forgetful, "alone", "reader", **KEPT) as subscriber:
            subscriber.subscribe("letters")
            subscriber.disconnect()
        with client(forgetful, "alone", "writer") as publisher:
            publisher.publish("letters", b"x", qos=0)
            publisher.publish("letters", b"y")
        forgetful.assert_nothing_lost()
        forgetful.crash("alone")
        with pytest.raises(GroundError, match="the network cannot come to rest: broker alone is crashed"):
            forgetful.assert_nothing_lost()
        forgetful.restart("alone")
        lost = "1 delivery at QoS 1 or 2 was lost:\nalone.1.2 to letters at alone for reader: gone with a crash"
        with pytest.raises(AssertionError, match=lost):
            forgetful.assert_nothing_lost()


def test_restarted_broker_keeps_sessions_and_address(network: BrokerNetwork) -> None:
    address = network.address("a")
    with client(network, "a", "kept", **KEPT) as subscriber:
        subscriber.subscribe("mail")
        network.wait_until_calm()
        subscriber.disconnect()
    with client(network, "b") as publisher:
        publisher.publish("mail", b"before")
        network.wait_until_calm()
        network.crash("a")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        publisher.publish("mail", b"while it was dead")
        network.restart("a")
        publisher.publish("mail", b"after")
    assert network.address("a") == address
    network.wait_until_calm()
    with client(network, "a", "kept", **KEPT) as subscriber:
        assert subscriber.connack.session_present
        assert [subscriber.take().payload for _ in range(3)] == [b"before", b"while it was dead", b"after"]


def test_crash_ends_connections_of_clients(network: BrokerNetwork) -> None:
    with client(network, "b") as connected:
        network.crash("b")
        assert connected.closed() == b""
    network.restart("b")


def test_paused_broker_answers_nobody_until_it_is_resumed(network: BrokerNetwork) -> None:
    with client(network, "a") as waiting, client(network, "b") as other:
        network.pause("a")
        waiting.send(b"\xc0\x00")
        assert is_silent(waiting)
        assert other.ping() == []
        network.resume("a")
        assert waiting.packet() == b"\xd0\x00"


def test_pause_outlasts_a_crash_until_the_broker_is_resumed(network: BrokerNetwork) -> None:
    network.pause("b")
    network.crash("b")
    with pytest.raises(ValueError, match="broker b was paused before it crashed: resume it first"):
        network.restart("b")
    network.resume("b")
    assert network.state("b") == "crashed"
    network.restart("b")
    assert network.state("b") == "serving"


def test_link_that_is_cut_one_way_carries_the_other(network: BrokerNetwork) -> None:
    with client(network, "a") as below, client(network, "root") as above:
        below.subscribe("down")
        above.subscribe("up")
        network.wait_until_calm()
        network.cut("root", "a", way="a>root")
        above.publish("down", b"1", qos=0)
        below.publish("up", b"2", qos=0)
        assert below.take().payload == b"1"
        assert is_silent(above)
        network.repair("a", "root")
        assert above.take().payload == b"2"


def test_interest_that_the_parent_does_not_know_of_is_under_way(network: BrokerNetwork) -> None:
    network.wait_until_calm()  # clients of other tests have left, and their interest is withdrawn
    with client(network, "a") as subscriber:
        network.cut("a", "root")
        subscriber.subscribe("one", "two")
        assert network.under_way("a") == 2
        network.repair("a", "root")
        network.wait_until_calm()
        assert network.under_way("a") == 0


def test_link_that_is_cut_both_ways_is_whole_after_repair(network: BrokerNetwork) -> None:
    with client(network, "a") as below, client(network, "b") as aside:
        below.subscribe("down")
        network.wait_until_calm()
        network.cut("a", "root")
        with pytest.raises(GroundError, match="the network cannot come to rest: the link a-root is cut"):
            network.wait_until_calm()
        aside.publish("down", b"1")
        assert is_silent(below)
        network.crash("root")
        network.restart("root")  # a does not hear of it before the repair
        network.repair("a", "root")
        assert below.take().payload == b"1"


def test_disconnect_breaks_the_connection_of_one_client_or_of_all(network: BrokerNetwork) -> None:
    with client(network, "a", "one") as one, client(network, "a", "two") as two, client(network, "b") as elsewhere:
        assert network.disconnect("a", "two") == 1
        with pytest.raises(ConnectionResetError):
            two.socket.recv(1)
        assert one.ping() == []
        with client(network, "a", "two"):
            assert network.disconnect("a") == 2
        with pytest.raises(ConnectionResetError):
            one.socket.recv(1)
        assert elsewhere.ping() == []
        with pytest.raises(GroundError, match="no client one is connected to broker a"):
            network.disconnect("a", "one")


def test_two_networks_at_once_do_not_hear_each_other(network: BrokerNetwork, tmp_path: Path) -> None:
    ours = f"{os.getpid()}-*.journal*"
    before = len(list(journal.folder().glob(ours)))
    with BrokerNetwork(topology={"tree": "line", "brokers": 2}, folder=tmp_path, routing="flooding") as other:
        assert other.names == ("b0", "b1")
        assert len(list(journal.folder().glob(ours))) == before + 1
        with client(network, "a") as here, client(other, "b1") as there:
            for each in (here, there):
                each.subscribe("#")
            network.wait_until_calm()
            here.publish("x", b"here", qos=0)
            there.publish("x", b"there", qos=0)
            assert (here.take().payload, there.take().payload) == (b"here", b"there")
            assert is_silent(here)
            assert is_silent(there)
    with pytest.raises(ValueError, match="the network does not run"):
        other.crash("b1")
    assert len(list(journal.folder().glob(ours))) == before


def test_dead_broker_that_nobody_killed_is_told(tmp_path: Path) -> None:
    with BrokerNetwork({"alone": None}, folder=tmp_path) as network:
        found = [int(it.name) for it in Path("/proc").glob("[0-9]*") if is_broker(it, tmp_path)]
        assert len(found) == 1
        os.kill(found[0], 9)
        until(lambda: network.state("alone") == "dead", "its death")
        with pytest.raises(GroundError, match=r"broker alone died \(killed by SIGKILL\)"):
            network.check()


def is_broker(process: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


MISTAKES: list[tuple[str, tuple[str, ...], str]] = [
    ("crash", ("c",), "there is no broker c; there are root, a, b"),
    ("address", ("",), "there is no broker ; there are root, a, b"),
    ("cut", ("a", "b"), "there is no link between a and b"),
    ("cut", ("a", "root", "up"), "way must be a>root or root>a, not up"),
    ("repair", ("a", "root"), "the link between a and root is not cut: it cannot be repaired"),
    ("restart", ("a",), "broker a is not crashed: it cannot be restarted"),
    ("resume", ("a",), "broker a is not paused: it cannot be resumed"),
]


@pytest.mark.parametrize(("verb", "arguments", "text"), MISTAKES)
def test_mistake_is_told_in_a_sentence(
    network: BrokerNetwork, verb: str, arguments: tuple[str, ...], text: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        getattr(network, verb)(*arguments)
    assert str(caught.value) == text


VERBS: list[tuple[str, tuple[str, ...]]] = [
    ("address", ("a",)), ("state", ("a",)), ("under_way", ("a",)), ("crash", ("a",)), ("restart", ("a",)),
    ("pause", ("a",)), ("resume", ("a",)), ("cut", ("a", "root")), ("repair", ("a", "root")), ("disconnect", ("a",)),
    ("wait_until_calm", ()), ("check", ()), ("heal", ()), ("assert_nothing_lost", ()),
]  # fmt: skip
HANG_S_MAX = 20.0


@pytest.mark.parametrize("was_closed", [False, True], ids=["not started", "closed"])
@pytest.mark.parametrize(("verb", "arguments"), VERBS)
def test_verb_on_a_network_that_does_not_run_is_a_sentence(
    tmp_path: Path, verb: str, arguments: tuple[str, ...], was_closed: bool
) -> None:
    network = BrokerNetwork(TREE, folder=tmp_path)
    raised: list[Exception] = []

    def call() -> None:
        try:
            getattr(network, verb)(*arguments)
        except Exception as error:  # noqa: BLE001 - it is compared
            raised.append(error)

    if was_closed:
        network.close()
    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(HANG_S_MAX)
    assert not caller.is_alive(), "it hangs"
    network.close()
    (error,) = raised
    assert isinstance(error, ValueError)
    assert str(error) == "the network does not run: it was not started, or is closed"
    assert network.told() == "the network was not started"


def test_network_is_started_only_once(tmp_path: Path) -> None:
    sentence = "^a network can be started only once: make another one$"
    with BrokerNetwork({"alone": None}, folder=tmp_path) as network:
        with pytest.raises(ValueError, match=sentence):
            network.start()
        assert network.state("alone") == "serving"
    with pytest.raises(ValueError, match=sentence):
        network.start()


def test_call_from_the_networks_own_event_loop_is_refused(network: BrokerNetwork) -> None:
    raised: Future[BaseException | None] = Future()

    def call() -> None:
        try:
            network.wait_until_calm()
        except ValueError as error:
            raised.set_result(error)

    network._loop.call_soon_threadsafe(call)
    assert str(raised.result(HANG_S_MAX)) == "the network cannot be called from its own event loop"


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({}, "give either the parent of every broker, like {'root': None, 'a': 'root'}, or a topology"),
    ({"parents": {"a": "b", "b": None}, "routing": "fast"}, "routing: must be flooding, simple, identity, covering, merging, peer, advertisement or peer-advertisement, not fast"),
    ({"parents": {"a": None, "b": "c"}}, "topology.parents.b: the parent c is no broker of this tree"),
    ({"topology": {"tree": "star", "broker": 5}}, "topology.broker: unknown key; did you mean brokers?"),
    ({"parents": {"a": None}, "faults": []}, "there is no setting faults; there are routing, durability, refresh, limits, links, service"),
    ({"parents": {"a": None}, "limits": object}, "the network cannot be described: Object of type type is not JSON serializable"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "text"), SETTINGS)
def test_wrong_setting_is_told_before_anything_starts(settings: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        BrokerNetwork(folder=tmp_path, **settings)
    assert str(caught.value) == text
