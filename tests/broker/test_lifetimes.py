"""A stock MQTT 5 client (paho) and messages with a lifetime, on real brokers two links apart."""

import time

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from brokerbed.pytest_plugin import BrokerNetworks
from tests.mqtt.paho_properties import of_connect, of_publish
from tests.mqtt.test_paho import Peer

EXPIRY_S = 60
AWAY_S = 1.2


def connected(client_id: str, address: tuple[str, int]) -> Peer:
    """With a session that is kept."""
    settings = {"client_id": client_id, "protocol": MQTTProtocolVersion.MQTTv5, "reconnect_on_failure": False}
    peer = Peer(Client(CallbackAPIVersion.VERSION2, **settings))  # type: ignore[arg-type]
    peer.client.connect(*address, clean_start=False, properties=of_connect(SessionExpiryInterval=1000))
    peer.client.loop_start()
    peer.connected()
    return peer


def test_interval_is_lowered_by_the_waits_on_a_cut_link_and_in_a_session(broker_network: BrokerNetworks) -> None:
    """A message waits for a link that is cut, and then for its subscriber. Another one dies there after a second."""
    network = broker_network({"root": None, "mid": "root", "leaf": "mid"})
    subscriber = connected("s", network.address("root"))
    subscriber.subscribe("t")
    network.wait_until_calm()
    subscriber.close()
    publisher = connected("p", network.address("leaf"))
    network.cut("mid", "root")
    before_s = time.monotonic()
    for expiry_s in (1, EXPIRY_S):
        publisher.publish("t", b"%d" % expiry_s, properties=of_publish(MessageExpiryInterval=expiry_s))
    published_s = time.monotonic()
    time.sleep(AWAY_S)
    network.repair("mid", "root")
    network.wait_until_calm()
    time.sleep(AWAY_S)
    asked_s = time.monotonic()
    again = connected("s", network.address("root"))
    message = again.take()
    received_s = time.monotonic()
    for peer in (publisher, again):
        peer.close()
    assert message.payload == b"%d" % EXPIRY_S
    assert again.session_present
    left_s = message.properties.MessageExpiryInterval  # type: ignore[union-attr]
    assert EXPIRY_S - (received_s - before_s) <= left_s < EXPIRY_S - (asked_s - published_s) + 1
    assert left_s <= EXPIRY_S - 2 * AWAY_S + 1
    assert again.messages.empty()
