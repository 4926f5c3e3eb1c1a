"""Loads that no client should cause: the memory of the broker stays bounded, and others are served then and afterwards."""

import socket
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import mqtt5
import pytest

from bench.brokers import MOSQUITTO, OURS
from bench.overload import CASES, SMALL, outcome
from tests.broker.running import WAIT_S, Running, broker, connect_packet, metric, until
from tests.broker.websockets import RawWebSocket
from tests.mqtt.dial import Dial

SECONDS = 0.5
PEAK_BYTES_MAX = 250 * 2**20  # an idle broker has about 35 MB; the small loads would exceed this if they were unbounded
RATE, MESSAGES = 200, 700  # two and a half seconds, of which the first one's worth is free
STUCK, PAYLOAD = 4, bytes(256 * 1024)


def limited(folder: Path, **limits: float) -> Path:
    config = folder / "broker.toml"
    config.write_text("[limits]\n" + "".join(f"{key} = {value}\n" for key, value in limits.items()))
    return config


@pytest.mark.parametrize("case", CASES)
def test_memory_is_bounded_and_an_honest_client_is_served(case: str) -> None:
    """Round trips are printed and not asserted, because other programs share the processors."""
    ours = outcome(OURS, case, SMALL, SECONDS)
    print(f"{case}: brokerbed {ours.peak_bytes / 1e6:.0f} MB, round trips up to {ours.trips_ms[-1]:.1f} ms")
    if MOSQUITTO.missing() is None:
        theirs = outcome(MOSQUITTO, case, SMALL, SECONDS)
        print(f"{case}: Mosquitto {theirs.peak_bytes / 1e6:.0f} MB")
    assert ours.peak_bytes < PEAK_BYTES_MAX
    assert ours.cut == 0
    assert ours.trips_ms
    assert ours.is_served


def stream() -> bytes:
    return b"".join(mqtt5.PublishPacket("t", b"%d" % number).write() for number in range(MESSAGES))


@pytest.mark.parametrize("kind", ["mqtt", "websocket"])
def test_client_that_sends_too_fast_is_read_from_later(tmp_path: Path, kind: str) -> None:
    """It loses nothing, its keep-alive of a second does not run while it waits, and others do not wait for it."""
    config = limited(tmp_path, messages_per_s_max=RATE)
    with (
        broker("--config", config, "--ws-port", "0", "--metrics-port", "0") as running,
        closing(Dial(running.ports["mqtt"])) as dial,
        ExitStack() as stack,
    ):
        subscriber, other = dial.v5(), dial.v5()
        subscriber.subscribe("t", qos=0)
        begun = time.monotonic()
        send_all(running, kind, stack)
        while metric(running, "brokerbed_shed_total", reason="rate") == 0:
            other.quiet()
        other.quiet()
        assert [int(subscriber.take().payload) for _ in range(MESSAGES)] == list(range(MESSAGES))
        assert time.monotonic() - begun > (MESSAGES - RATE) / RATE / 2


def send_all(running: Running, kind: str, stack: ExitStack) -> None:
    hello = connect_packet("fast", keep_alive=1)
    if kind == "websocket":
        web = stack.enter_context(closing(RawWebSocket(running.ports["websocket"])))
        web.connect(hello)
        data = stream()
        for at in range(0, len(data), 100):
            web.send(data[at : at + 100])
        return
    wire = stack.enter_context(socket.create_connection(("127.0.0.1", running.ports["mqtt"]), WAIT_S))
    wire.sendall(hello + stream())


def test_output_of_all_clients_is_limited_at_the_cost_of_those_that_do_not_read(tmp_path: Path) -> None:
    """Four that do not read may have 1 MB each, and all together 2 MB: some of them are cut, and nobody else."""
    config = limited(tmp_path, output_bytes_max=2**20, outputs_bytes_max=2 * 2**20)
    with (
        broker("--config", config, "--metrics-port", "0") as running,
        closing(Dial(running.ports["mqtt"])) as dial,
        ExitStack() as stack,
    ):
        healthy, publisher = dial.v5(), dial.v5()
        healthy.subscribe("t", qos=0)
        for number in range(STUCK):
            wire = stack.enter_context(socket.socket())
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", running.ports["mqtt"]))
            wanted = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=mqtt5.QoS(0))])
            wire.sendall(connect_packet(f"stuck{number}") + wanted.write())
        until(lambda: metric(running, "brokerbed_routing_entries", scope="local") == STUCK + 1, "all subscriptions")
        for _ in range(8 * STUCK):
            publisher.publish("t", PAYLOAD, 0)
            assert healthy.take().payload == PAYLOAD
        until(lambda: metric(running, "brokerbed_shed_total", reason="output_bytes") > 0, "the end of a connection")
        until(lambda: metric(running, "brokerbed_connections") < STUCK + 2, "the broker's knowing of it")
        publisher.publish("t", b"still here", 0)
        assert healthy.take().payload == b"still here"


def test_many_that_end_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    with (
        broker("--config", limited(tmp_path), "--metrics-port", "0") as running,
        closing(Dial(running.ports["mqtt"])) as dial,
    ):
        other = dial.v5()
        with ExitStack() as stack, suppress(OSError):
            for number in range(30):
                wire = stack.enter_context(socket.create_connection(("127.0.0.1", running.ports["mqtt"]), WAIT_S))
                filters = [mqtt5.TopicFilter(f"{number}/+/{each}") for each in range(100)]
                wire.sendall(connect_packet(f"c{number}") + mqtt5.SubscribePacket(1, filters).write())
            until(lambda: metric(running, "brokerbed_routing_entries", scope="local") == 3000, "all subscriptions")
        until(lambda: metric(running, "brokerbed_routing_entries", scope="local") == 0, "the end of all")
        assert metric(running, "brokerbed_connections") == 1
        other.quiet()
