"""What a broker's metrics say of clients that come and go, of full queues and of links that fall silent."""

import signal
from pathlib import Path

from tests.broker.running import Running, broker, metric, until
from tests.mqtt.dial import Dial

PAYLOAD = b"x" * 1000


def of_clients(running: Running, name: str) -> tuple[float, float]:
    """Of those that are connected, and of those that are not."""
    on, off = (metric(running, f"brokerbed_client_{name}", state=state) for state in ("connected", "offline"))
    return on, off


def test_sessions_on_and_off(tmp_path: Path) -> None:
    """A subscriber that is away has a queue for four messages: two are half of it, of six two are dropped."""
    config = tmp_path / "broker.toml"
    config.write_text("[limits]\nqueue_messages_max = 4\n", encoding="utf-8")
    with broker("--metrics-port", "0", "--config", config) as running:
        dial = Dial(running.ports["mqtt"])
        publisher, phone = dial.v5(), dial.v5("phone", session_expiry_interval=600)
        phone.subscribe("t", qos=1)
        assert of_clients(running, "sessions") == (2, 0)
        phone.disconnect(session_expiry=600)
        until(lambda: of_clients(running, "sessions") == (1, 1), "the phone being offline")
        for _ in range(2):
            publisher.publish("t", PAYLOAD)
        assert of_clients(running, "queue_messages") == (0, 2)
        on, off = of_clients(running, "queue_bytes")
        assert on == 0
        assert 2 * len(PAYLOAD) <= off < 2.1 * len(PAYLOAD)
        assert metric(running, "brokerbed_session_queue_bytes") == off
        assert metric(running, "brokerbed_session_queue_fill_ratio") == 0.5
        for _ in range(4):
            publisher.publish("t", PAYLOAD)
        assert of_clients(running, "queue_messages") == (0, 4)
        assert metric(running, "brokerbed_session_queue_fill_ratio") == 1
        assert metric(running, "brokerbed_messages_dropped_total", reason="queue_full") == 2
        assert metric(running, "brokerbed_offline_messages") == 4
        phone = dial.v5("phone", clean_start=False, session_expiry_interval=600)
        assert phone.take_all() == [PAYLOAD] * 4
        assert of_clients(running, "sessions") == (2, 0)
        assert of_clients(running, "queue_bytes") == (0, 0)
        dial.close()


def test_queue_is_as_full_as_its_bytes(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[limits]\nqueue_bytes_max = 4000\n", encoding="utf-8")
    with broker("--metrics-port", "0", "--config", config) as running:
        dial = Dial(running.ports["mqtt"])
        publisher, phone = dial.v5(), dial.v5("phone", session_expiry_interval=600)
        phone.subscribe("t", qos=1)
        phone.disconnect(session_expiry=600)
        until(lambda: of_clients(running, "sessions") == (1, 1), "the phone being offline")
        publisher.publish("t", PAYLOAD)
        waiting = metric(running, "brokerbed_session_queue_bytes")
        assert metric(running, "brokerbed_session_queue_fill_ratio") == waiting / 4000 >= 0.25
        dial.close()


def test_links_are_no_clients_and_fall_silent() -> None:
    with broker("--name", "root", "--metrics-port", "0", "--routing", "flooding") as root:
        parent = f"127.0.0.1:{root.ports['mqtt']}"
        with broker("--name", "leaf", "--metrics-port", "0", "--routing", "flooding", "--parent", parent) as leaf:
            ends = ((root, "leaf"), (leaf, "root"))
            until(lambda: all(metric(it, "brokerbed_link_connected", peer=peer) for it, peer in ends), "the link")
            assert [metric(it, "brokerbed_link_upward", peer=peer) for it, peer in ends] == [0, 1]
            assert of_clients(root, "sessions") == of_clients(leaf, "sessions") == (0, 0)
            assert all(metric(it, "brokerbed_link_silent_seconds", peer=peer) < 10 for it, peer in ends)
            leaf.process.send_signal(signal.SIGSTOP)
            try:
                before = metric(root, "brokerbed_link_silent_seconds", peer="leaf")
                until(
                    lambda: metric(root, "brokerbed_link_silent_seconds", peer="leaf") > before + 1,
                    "a second of silence",
                )
                assert metric(root, "brokerbed_link_connected", peer="leaf") == 1
            finally:
                leaf.process.send_signal(signal.SIGCONT)
        until(lambda: not metric(root, "brokerbed_link_connected", peer="leaf"), "the end of the link")
        dial = Dial(root.ports["mqtt"])
        dial.v5().publish("t", PAYLOAD)
        assert metric(root, "brokerbed_link_queue_messages", peer="leaf") == 1
        dial.close()
