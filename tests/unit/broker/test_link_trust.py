"""A link proves that it is one, both ends do, and what it says is checked; links and clients have names of their own."""

import mqtt5
import pytest

from brokerbed.broker.core import link_proof
from brokerbed.broker.core.access import parse_access
from tests.core_client import FOREVER_S, Client
from tests.core_network import Network

SECRET, OTHER = b"s" * 32, b"o" * 32
PAIR = {"a": None, "b": "a"}


def joined(network: Network, child: str = "b") -> bool:
    parent = network.nodes[child].broker.overlay.parent
    return parent is not None and parent.connection is not None


def connect_link(client: Client, **options: object) -> mqtt5.Packet | None:
    """An attacker's CONNECT that says it is the link of a broker called b; the answer."""
    client.open()
    properties = [("overlay-name", "b"), ("overlay-instance", "x")]
    client.send(mqtt5.ConnectPacket("$link/b", clean_start=False, user_properties=properties, **options))  # type: ignore[arg-type]
    return client.read()


def test_link_with_the_secret_is_accepted_and_works() -> None:
    network = Network(PAIR, link_secret=SECRET)
    subscriber, publisher = network.client("a", "s"), network.client("b", "p")
    subscriber.connect()
    publisher.connect()
    subscriber.subscribe("t")
    publisher.publish("t", b"x", qos=1)
    assert subscriber.payloads() == [b"x"]


@pytest.mark.parametrize(
    ("parent", "child", "why"),
    [
        (SECRET, OTHER, "the parent at a does not know the link secret of this broker"),
        (SECRET, None, "refuses the link: check link_secret_file"),
        (None, SECRET, "refuses the link: it has no link_secret_file"),
    ],
)
def test_link_without_the_same_secret_is_refused_with_a_reason(
    parent: bytes | None, child: bytes | None, why: str
) -> None:
    network = Network(PAIR, configs={"a": {"link_secret": parent}, "b": {"link_secret": child}})
    assert not joined(network)
    assert why in (network.nodes["b"].broker.overlay.introduction.refusal or "")
    assert network.nodes["a"].broker.links == {}


def test_client_that_poses_as_a_link_is_refused_without_the_secret() -> None:
    network = Network({"a": None}, link_secret=SECRET)
    answer = connect_link(network.client("a", ""))
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.reason_code == 0x87


def test_client_that_poses_as_a_link_and_guesses_the_proof_is_refused() -> None:
    network = Network({"a": None}, link_secret=SECRET)
    client = network.client("a", "")
    challenge = connect_link(client, authentication_method=link_proof.METHOD, authentication_data=b"n" * 16)
    assert isinstance(challenge, mqtt5.AuthPacket)
    assert challenge.authentication_data is not None
    client.send(link_proof.auth_packet(challenge.authentication_data[16:]))  # the parent's own proof, sent back
    answer = client.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.reason_code == 0x87
    assert client.is_closed


def test_proof_of_another_exchange_is_worth_nothing() -> None:
    """Somebody has recorded how the real link introduced itself, and repeats it word by word."""
    network = Network({"a": None}, link_secret=SECRET)
    challenge = link_proof.Challenge(SECRET, "b", b"n" * 16)
    recorded: bytes | None = None
    for is_replayed in (False, True):
        client = network.client("a", "")
        asked = connect_link(client, authentication_method=link_proof.METHOD, authentication_data=b"n" * 16)
        assert isinstance(asked, mqtt5.AuthPacket)
        recorded = recorded or challenge.child_answer(asked.authentication_data or b"")
        assert recorded is not None
        client.send(link_proof.auth_packet(recorded))
        answer = client.read()
        assert isinstance(answer, mqtt5.ConnAckPacket)
        assert answer.reason_code == (0x87 if is_replayed else 0)
        client.drop()


def test_parent_that_accepts_without_a_proof_of_its_own_is_not_believed() -> None:
    """Whoever answers at the parent's address gets nothing if he does not know the secret."""
    network = Network({"a": None, "b": "a"}, configs={"b": {"link_secret": SECRET}})
    broker = network.nodes["b"].broker
    connection = broker.opened(network.now_ns, peer="a")
    broker.overlay.dialled(connection)
    connection.output.clear()
    broker.received(connection, mqtt5.ConnAckPacket(user_properties=[("overlay-name", "a")]).write(), network.now_ns)
    assert connection.is_closing
    assert broker.overlay.introduction.refusal == "the parent at a did not prove that it knows the link secret"
    assert not joined(network)


def test_without_a_secret_links_come_from_this_machine_only() -> None:
    network = Network({"a": None})
    client = network.client("a", "")
    assert isinstance(accepted := connect_link(client), mqtt5.ConnAckPacket)
    assert accepted.reason_code == 0
    client.drop()
    client.open()
    assert client.connection is not None
    client.connection.is_local = False
    client.send(mqtt5.ConnectPacket("$link/b", user_properties=[("overlay-name", "b"), ("overlay-instance", "x")]))
    refused = client.read()
    assert isinstance(refused, mqtt5.ConnAckPacket)
    assert refused.reason_code == 0x87


def test_what_children_say_of_their_process_does_not_give_away_the_token() -> None:
    network = Network({"a": None, "b": "a"})
    link = network.nodes["a"].broker.links["$link/b"].link
    assert link is not None
    assert link.instance
    assert network.nodes["b"].broker.config.id_token not in link.instance


@pytest.mark.parametrize(
    "value",
    [
        "o" * 120 + ".0000000000000001",
        "o" * 400 + ".0000000000000001",
        "b.1.99999999999999999999",
        "b.1.1",
        "b",
        "é.1.0000000000000001",
    ],
)
def test_identity_that_no_broker_gives_ends_the_link_that_sent_it_and_no_other(value: str) -> None:
    network = Network({"a": None, "m": "a"})
    child = network.client("m", "")
    answer = connect_link(child)
    assert isinstance(answer, mqtt5.ConnAckPacket)
    child.send(mqtt5.PublishPacket("t", b"x", user_properties=[("overlay-message", value)]))
    packets = child.read_all()
    assert [type(it) for it in packets] == [mqtt5.DisconnectPacket]
    assert child.is_closed
    assert joined(network, "m")
    publisher, subscriber = network.client("m", "p"), network.client("a", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t")
    publisher.publish("t", b"y")
    assert subscriber.payloads() == [b"y"]


@pytest.mark.parametrize("size", [1, 90])
def test_identity_of_any_length_that_a_broker_may_have_passes_over_links(size: int) -> None:
    network = Network({"a": None, "m": "a"})
    child, subscriber = network.client("m", ""), network.client("a", "s")
    connect_link(child)
    subscriber.connect()
    subscriber.subscribe("t")
    identity = "o" * size + ".0000000000000007"
    for expiry_s in (None, 60):  # one on the fast path, one with properties of its own
        child.send(
            mqtt5.PublishPacket(
                "t", b"x", user_properties=[("overlay-message", identity)], message_expiry_interval=expiry_s
            )
        )
    assert subscriber.payloads() == [b"x", b"x"]


def test_identity_made_up_at_a_foreign_parent_does_not_end_the_link() -> None:
    """A client of the foreign root publishes with a property that looks like one of ours."""
    network = Network({"f": "x", "x": None}, configs={"f": {"parent_is_foreign": True}})
    network.cut("f")
    broker = network.nodes["f"].broker
    connection = broker.opened(network.now_ns, peer="x:1883")
    connection.driver = network.client("x", "sink")  # takes what is written
    broker.overlay.dialled(connection)
    broker.received(connection, mqtt5.ConnAckPacket().write(), network.now_ns)
    subscriber = network.client("f", "s")
    subscriber.connect()
    subscriber.subscribe("t")
    for identity in ("o" * 400 + ".0000000000000001", "nonsense"):
        packet = mqtt5.PublishPacket("t", b"x", user_properties=[("overlay-message", identity), ("k", "v")])
        broker.received(connection, packet.write(), network.now_ns)
        network.settle()
    assert subscriber.payloads() == [b"x", b"x"]
    assert not connection.is_closing


def test_link_that_was_a_users_keeps_its_session_when_a_secret_is_introduced() -> None:
    network = Network({"a": None}, access=parse_access("user leaf\ntopic readwrite #\n"))
    client, broker = network.client("a", ""), network.nodes["a"].broker
    connect_link(client, username="leaf", session_expiry_interval=FOREVER_S)
    client.drop()
    object.__setattr__(broker.config, "link_secret", SECRET)  # as a restart with another configuration does
    asked = connect_link(client, authentication_method=link_proof.METHOD, authentication_data=b"n" * 16)
    assert isinstance(asked, mqtt5.AuthPacket)
    answer = link_proof.Challenge(SECRET, "b", b"n" * 16).child_answer(asked.authentication_data or b"")
    assert answer is not None
    client.send(link_proof.auth_packet(answer))
    accepted = client.read()
    assert isinstance(accepted, mqtt5.ConnAckPacket)
    assert (int(accepted.reason_code), accepted.session_present) == (0, True)


def test_client_with_the_name_of_the_parent_keeps_its_session_when_the_parent_is_forgotten() -> None:
    network = Network({"root": None, "b": "root"})
    client = network.client("b", "root")
    client.connect(expiry_s=FOREVER_S)
    client.subscribe("t", qos=1)
    client.drop()
    network.nodes["b"].broker.overlay.forget_parent(network.now_ns)
    publisher = network.client("b", "p")
    publisher.connect()
    publisher.publish("t", b"x", qos=1)
    assert client.connect(clean=False, expiry_s=FOREVER_S).session_present
    assert client.payloads() == [b"x"]


def test_access_rules_are_for_clients_and_not_for_what_comes_from_the_parent() -> None:
    rules = parse_access("user reader\ntopic read news/#\n")
    network = Network(PAIR, configs={"b": {"access": rules}})
    publisher, subscriber = network.client("a", "p"), network.client("b", "s")
    publisher.connect()
    subscriber.connect(username="reader")
    assert subscriber.subscribe("news/#", qos=1) == [1]
    for qos in (0, 1, 2):
        publisher.publish("news/1", b"%d" % qos, qos=qos)
    assert subscriber.payloads() == [b"0", b"1", b"2"]


def test_user_that_must_not_read_everything_cannot_be_a_link_under_flooding() -> None:
    rules = parse_access("user leaf\ntopic readwrite open/#\nuser trunk\ntopic readwrite #\n")
    for user, code in (("leaf", 0x87), ("trunk", 0)):
        network = Network({"a": None}, routing="flooding", access=rules)
        answer = connect_link(network.client("a", ""), username=user)
        assert isinstance(answer, mqtt5.ConnAckPacket)
        assert answer.reason_code == code


def test_access_rules_of_a_parent_bind_a_link_that_has_not_proved_itself() -> None:
    """Without a secret a link from this machine is no more than the user that it names."""
    rules = parse_access("user leaf\ntopic readwrite open/#\n")
    network = Network(PAIR, configs={"a": {"access": rules}, "b": {"parent_user": "leaf"}})
    publisher, subscriber = network.client("b", "p"), network.client("a", "s")
    publisher.connect()
    subscriber.connect(username="leaf")
    subscriber.subscribe("open/#")
    publisher.publish("open/1", b"yes", qos=1)
    publisher.publish("closed/1", b"no", qos=1)
    assert subscriber.payloads() == [b"yes"]
    proven = Network(PAIR, link_secret=SECRET, configs={"a": {"access": parse_access("user s\ntopic read #\n")}})
    publisher, subscriber = proven.client("b", "p"), proven.client("a", "s")
    publisher.connect()
    subscriber.connect(username="s")
    subscriber.subscribe("#")
    publisher.publish("closed/1", b"no user is needed", qos=1)
    assert subscriber.payloads() == [b"no user is needed"]
