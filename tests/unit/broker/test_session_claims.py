"""How the session of a client that connects to another broker is found, and what the client gets if it is not."""

import mqtt5
import pytest

from brokerbed.broker.core.access import parse_access
from tests.core_client import FOREVER_S, QOS
from tests.core_network import Network
from tests.core_roaming import LINE, SEVEN, is_at_rest, keeps, leaves, open_claim, publisher_at


def test_claim_of_an_unknown_client_is_answered_by_nobody() -> None:
    network = Network(SEVEN)
    before = sum(network.sent("resync").values())
    _, answer = keeps(network, "x1")
    assert not answer.session_present
    assert sum(network.sent("resync").values()) - before == 2 * (len(SEVEN) - 1)  # a claim and an answer on each link
    _, answer = keeps(network, "x1")
    assert answer.session_present


def test_clean_start_asks_nobody() -> None:
    network = Network(LINE)
    leaves(network, "a")
    before = network.sent("resync")
    new = network.client("c", "s")
    assert not new.connect(clean=True, expiry_s=FOREVER_S).session_present
    assert not network.client("b", "s").connect(clean=False, expiry_s=0).session_present
    assert network.sent("resync") == before
    assert "s" in network.nodes["a"].broker.sessions


@pytest.mark.parametrize("node", ["a", "c"])
def test_roaming_can_be_turned_off_at_either_broker(node: str) -> None:
    network = Network(LINE, configs={node: {"roaming": False}})
    leaves(network, "a")
    _, answer = keeps(network, "c")
    assert not answer.session_present
    assert "s" in network.nodes["a"].broker.sessions


def test_session_passes_through_a_broker_that_does_not_roam_itself() -> None:
    network = Network(LINE, configs={"b": {"roaming": False}})
    leaves(network, "a")
    assert keeps(network, "c")[1].session_present


def test_another_user_cannot_take_a_session_away() -> None:
    network = Network(LINE, access=parse_access("pattern readwrite #"))
    old, _ = keeps(network, "a", username="ann")
    old.drop()
    assert not keeps(network, "c", username="bob")[1].session_present
    assert network.nodes["a"].broker.sessions["s"].user == "ann"
    other, answer = keeps(network, "b", username="ann")
    assert answer.session_present
    assert (network.nodes["b"].broker.sessions["s"].user, network.nodes["c"].broker.sessions["s"].user) == (
        "ann",
        "bob",
    )
    other.drop()


@pytest.mark.parametrize(("timeout_s", "waits_s"), [(5.0, 5.0), (0.0, 0.0), (2.0, 2.0)])
def test_client_waits_for_a_broker_that_is_cut_off_up_to_a_limit(timeout_s: float, waits_s: float) -> None:
    """Then it gets a new session; what the old broker has comes when the link is back, and is forgotten there."""
    network = Network(LINE, is_durable=True, move_timeout_s=timeout_s)
    leaves(network, "a", "t", "u")
    publisher = publisher_at(network, "a")
    publisher.publish("t", b"1", qos=1)
    network.cut("b")
    new = open_claim(network, "c")
    if waits_s:
        network.wait(waits_s - 0.1)
        assert new.read() is None
        network.wait(0.2)
    answer = new.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert not answer.session_present
    assert new.payloads() == []
    network.join("b")
    assert new.payloads() == [b"1"]
    publisher.publish("u", b"2", qos=1)  # the new session has no subscriptions
    assert new.payloads() == []
    assert list(network.nodes["a"].broker.sessions) == ["p"]
    assert list(network.nodes["c"].broker.sessions) == ["s"]
    assert network.entries("a") == {}


def test_client_that_waits_gets_its_session_when_the_link_is_back_in_time() -> None:
    network = Network(LINE, is_durable=True)
    leaves(network, "a", "t")
    network.cut("b")
    new = open_claim(network, "c")
    new.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("u", max_qos=QOS[1])]))  # without waiting for CONNACK
    network.wait(3)
    assert new.read() is None
    network.join("b")
    answer, acknowledgement = new.read_all()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.session_present
    assert isinstance(acknowledgement, mqtt5.SubAckPacket)
    assert sorted(network.nodes["c"].broker.sessions["s"].subscriptions) == ["t", "u"]


def test_client_that_goes_away_while_it_waits_is_no_problem() -> None:
    network = Network(LINE, is_durable=True)
    leaves(network, "a")
    network.cut("b")
    open_claim(network, "c").drop()
    network.join("b")
    network.wait(10)
    assert [node.name for node in network.nodes.values() if "s" in node.broker.sessions] == ["c"]
    assert network.nodes["c"].broker.sessions["s"].connection is None
    assert keeps(network, "c")[1].session_present


def test_later_claim_wins_and_the_client_that_waits_for_the_earlier_one_is_disconnected() -> None:
    network = Network(SEVEN, is_durable=True)
    leaves(network, "r")
    network.cut("x")
    early = open_claim(network, "x1")
    network.wait(1.5)
    late, answer = keeps(network, "y1")
    assert answer.session_present
    network.join("x")
    assert early.is_closed
    assert "s" in network.nodes["y1"].broker.sessions
    assert not late.is_closed


def test_broker_in_between_that_forgets_everything_does_not_keep_the_session() -> None:
    """Brokers without a store: what had not left the old broker is still there, and is claimed again."""
    network = Network(LINE)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=1)
    publisher = publisher_at(network, "a")
    old.drop()
    publisher.publish("t", b"1", qos=1)
    network.links["b"][1].driver.is_held = True  # what a sends does not arrive
    new = open_claim(network, "c")
    publisher.publish("t", b"2", qos=1)
    network.restart("b")
    network.join("b")
    network.join("c")
    network.wait(2)
    answer = new.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.session_present
    publisher.publish("t", b"3", qos=1)
    assert new.payloads()[-1] == b"3"
    assert is_at_rest(network)
    assert [node.name for node in network.nodes.values() if "s" in node.broker.sessions] == ["c"]


def test_session_that_comes_where_its_client_made_a_clean_start_is_dropped() -> None:
    network = Network(LINE, is_durable=True)
    leaves(network, "a", "t")
    publisher = publisher_at(network, "a")
    publisher.publish("t", b"1", qos=1)
    network.cut("b")
    open_claim(network, "c").drop()
    new = network.client("c", "s")
    new.connect(clean=True, expiry_s=FOREVER_S)
    network.join("b")
    assert new.payloads() == []
    assert is_at_rest(network)
    assert list(network.nodes["a"].broker.sessions) == ["p"]


def test_what_a_new_session_has_got_does_not_come_once_more_from_the_old_one() -> None:
    """While the link is down, messages for the old session wait for it; the new session gets them as well."""
    network = Network(LINE, is_durable=True, move_timeout_s=1)
    leaves(network, "a", "t", qos=2)
    publishers = {node: network.client(node, f"p{node}") for node in LINE}
    for publisher in publishers.values():
        publisher.connect(keep_alive=0)
    network.cut("b")
    publishers["c"].publish("t", b"before", qos=2)
    publishers["a"].publish("t", b"there", qos=2)
    new = open_claim(network, "c")
    network.wait(1.5)
    answer = new.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert not answer.session_present
    new.subscribe("t", qos=2)
    publishers["c"].publish("t", b"here", qos=2)
    assert new.payloads() == [b"here"]
    network.join("b")
    network.wait(2)
    publishers["a"].publish("t", b"after", qos=2)
    assert new.payloads() == [b"there", b"before", b"after"]
    session = network.nodes["c"].broker.sessions["s"]
    assert session.move is None
    assert not session.has_service


def test_live_connection_is_taken_over_and_nothing_is_lost_at_qos0() -> None:
    network = Network(LINE)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=0)
    publisher = publisher_at(network, "b")
    publisher.publish("t", b"1")
    new, answer = keeps(network, "c")
    publisher.publish("t", b"2")
    packets = old.read_all()
    assert [type(packet) for packet in packets] == [mqtt5.PublishPacket, mqtt5.DisconnectPacket]
    assert packets[1].reason_code == 0x8E  # type: ignore[union-attr]
    assert old.is_closed
    assert answer.session_present
    assert new.payloads() == [b"2"]
