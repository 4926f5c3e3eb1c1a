"""Messages with a lifetime die at their time, wherever they wait or are in service; what was sent is not taken back.

All times are worked out by hand. A service takes 10 s everywhere; time zero is the first publication.
"""

from typing import Any

import mqtt5
import pytest

from brokerbed.broker.core import lifetime
from brokerbed.broker.errors import ProtocolError
from brokerbed.log.record import FIELDS, RECORD, Kind, Log, Reason
from tests.core_client import NS_PER_S, Client, World
from tests.core_network import Network

ZERO_NS = NS_PER_S  # when the worlds of these tests begin
LINE = {"b0": None, "b1": "b0"}
DROPPED, SENT, SERVED = Kind.DROPPED, Kind.SENT, Kind.SERVED


def ten_seconds() -> int:
    return 10 * NS_PER_S


def of_log(log: Log, *kinds: Kind) -> list[tuple[int, float, Kind, int]]:
    """Number of the message at its broker, seconds, kind and reason of these events."""
    events = (dict(zip((name for name, _ in FIELDS), it, strict=True)) for it in RECORD.iter_unpack(log.records))
    return [
        (it["sequence"], (it["time_ns"] - ZERO_NS) / NS_PER_S, Kind(it["kind"]), it["reason"])
        for it in events
        if it["kind"] in kinds
    ]


def lives(client: Client, *seconds: int | None, qos: int = 1) -> None:
    """Publishes messages with these lifetimes; None: it lives for ever."""
    for number, expiry_s in enumerate(seconds, 1):
        client.publish("t", b"%d" % number, qos=qos, message_expiry_interval=expiry_s)


FOUR = (None, 5, 15, None)
ENDS_OF_FOUR = {1: 10.0, 2: 5.0, 3: 15.0, 4: 25.0}
"""1 is served from 0 to 10. 2 dies waiting. 3 is in service from 10 on and dies at 15, when the service of 4 begins."""


@pytest.mark.parametrize(
    ("free", "now", "expires", "ends"),
    [
        (0, 7, None, (17, 17)),  # it comes to an idle stage
        (20, 7, None, (30, 30)),  # it waits
        (20, 7, 31, (30, 30)),  # its time is long enough
        (20, 7, 30, (30, 30)),  # at the end of its service it is over
        (20, 7, 25, (25, 25)),  # it dies in service, which the next one has from then on
        (20, 7, 20, (20, 20)),  # it dies as its service would begin
        (20, 7, 12, (12, 20)),  # it dies waiting, and has cost nothing
        (20, 7, 5, (7, 20)),  # it was dead when it came
        (0, 7, 5, (7, 0)),
    ],
)
def test_stage_with_a_service_of_10(free: int, now: int, expires: int | None, ends: tuple[int, int]) -> None:
    assert lifetime.stage_end_ns(free, now, 10, expires) == ends


def test_at_the_input_of_a_broker() -> None:
    log = Log()
    world = World(log, service_in=ten_seconds, keep_alive_max_s=0)
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(keep_alive=0)
    subscriber.subscribe("t")
    lives(publisher, *FOUR)
    assert world.broker.entering == 4
    world.wait(30)
    assert of_log(log, SERVED, DROPPED) == [
        (2, 5.0, DROPPED, Reason.INPUT_EXPIRED), (1, 10.0, SERVED, 0),
        (3, 15.0, DROPPED, Reason.INPUT_EXPIRED), (4, 25.0, SERVED, 0),
    ]  # fmt: skip
    assert subscriber.payloads() == [b"1", b"4"]
    assert world.broker.counters.dropped[Reason.INPUT_EXPIRED] == 2
    assert world.broker.counters.expired == {"input": 2, "link": 0, "session": 0}
    assert world.broker.entering == world.broker.entering_bytes == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_at_a_link(qos: int) -> None:
    network = Network(LINE, service_link=ten_seconds)
    publisher, subscriber = network.client("b1", "p"), network.client("b0", "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(keep_alive=0)
    subscriber.subscribe("t")
    lives(publisher, *FOUR, qos=qos)
    network.wait(30)
    ends = of_log(network.nodes["b1"].log, SENT, DROPPED)
    assert {number: seconds for number, seconds, _, _ in ends} == ENDS_OF_FOUR
    assert [number for number, _, kind, reason in ends if (kind, reason) == (DROPPED, Reason.EXPIRED)] == [2, 3]
    assert subscriber.payloads() == [b"1", b"4"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_in_the_service_of_a_session(qos: int) -> None:
    log = Log()
    world = World(log, session_service={"s": ten_seconds}, keep_alive_max_s=0)
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(keep_alive=0)
    subscriber.subscribe("t")
    lives(publisher, *FOUR, qos=qos)
    world.wait(30)
    assert {number: seconds for number, seconds, _, _ in of_log(log, SENT, DROPPED)} == ENDS_OF_FOUR
    assert subscriber.payloads() == [b"1", b"4"]


def test_interrupted_service_of_a_session_that_is_away() -> None:
    """1 is interrupted at 4 and dies at 8, while s is away. s is back at 20: 3 begins then and takes until 30."""
    log = Log()
    world = World(log, session_service={"s": ten_seconds}, keep_alive_max_s=0)
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    subscriber.subscribe("t")
    lives(publisher, 8, 19, None)
    world.wait(4)
    subscriber.drop()
    world.wait(16)
    assert of_log(log, DROPPED) == [(1, 8.0, DROPPED, Reason.EXPIRED), (2, 19.0, DROPPED, Reason.EXPIRED)]
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    world.wait(20)
    assert of_log(log, SENT) == [(3, 30.0, SENT, 0)]
    assert subscriber.payloads() == [b"3"]


def test_in_the_queue_of_a_session_in_any_order() -> None:
    log = Log()
    world = World(log, keep_alive_max_s=0)
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    subscriber.subscribe("t")
    subscriber.drop()
    lives(publisher, 30, 20, 10, None, 40)
    world.wait(35)
    assert of_log(log, DROPPED) == [
        (number, seconds, DROPPED, Reason.EXPIRED) for number, seconds in ((3, 10), (2, 20), (1, 30))
    ]
    session = world.broker.sessions["s"]
    assert len(session.queue) == 2
    assert session.queue_bytes == 2 * len(b"\0\1t4")
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    assert subscriber.payloads() == [b"4", b"5"]
    assert len(world.broker.timers) < 5  # nothing is left that waits for the end of 5


def test_dead_messages_make_room_in_a_full_queue() -> None:
    world = World(queue_messages_max=2, keep_alive_max_s=0)
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    subscriber.subscribe("t")
    subscriber.drop()
    lives(publisher, None, 5)
    world.wait(6)
    lives(publisher, None)
    assert world.broker.counters.dropped[Reason.QUEUE_FULL] == 0
    assert world.broker.counters.dropped[Reason.EXPIRED] == 1


def test_on_a_link_that_is_cut() -> None:
    network = Network(LINE)
    publisher, subscriber = network.client("b1", "p"), network.client("b0", "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(keep_alive=0)
    subscriber.subscribe("t")
    network.cut("b1")
    lives(publisher, 5, 60)
    network.wait(20)
    assert of_log(network.nodes["b1"].log, DROPPED) == [(1, 5.0, DROPPED, Reason.EXPIRED)]
    network.join("b1")
    assert subscriber.payloads() == [b"2"]


def test_what_was_sent_is_sent_again_however_late() -> None:
    """s has not acknowledged 1 and 2 when it goes; 3 was not sent."""
    world = World(inflight_max=2, keep_alive_max_s=0)
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    subscriber.subscribe("t", qos=1)
    lives(publisher, 5, 5, 5)
    subscriber.drop()
    world.wait(20)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    assert subscriber.payloads() == [b"1", b"2"]


def publications(client: Client) -> list[mqtt5.PublishPacket]:
    return [packet for packet in client.read_all() if isinstance(packet, mqtt5.PublishPacket)]


def test_interval_is_lowered_at_each_hop_and_rounded_up() -> None:
    """10 s: after 2.3 s at b1 it is told as 8, and after another 3.1 s at b0 as 5; with .4 s left as 1, never as 0."""
    for waits, told in (((2.3, 3.1), 5), ((6.2, 3.4), 1)):
        network = Network(LINE)
        publisher, subscriber = network.client("b1", "p"), network.client("b0", "s")
        publisher.connect(keep_alive=0)
        subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
        subscriber.subscribe("t")
        subscriber.drop()
        network.cut("b1")
        publisher.publish("t", b"x", qos=1, message_expiry_interval=10)
        network.wait(waits[0])
        network.join("b1")
        network.wait(waits[1])
        subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
        (packet,) = publications(subscriber)
        assert packet.message_expiry_interval == told


def test_retained_message_tells_what_is_left_and_dies() -> None:
    world = World(keep_alive_max_s=0)
    publisher, early, late = Client(world, "p"), Client(world, "e"), Client(world, "l")
    for client in (publisher, early, late):
        client.connect(keep_alive=0)
    publisher.publish("t", b"x", retain=True, message_expiry_interval=10)
    world.wait(6.5)
    early.subscribe("t")
    (packet,) = publications(early)
    assert packet.message_expiry_interval == 4
    world.wait(3.5)
    late.subscribe("t")
    assert publications(late) == []


def exact_payload(client_id: str, seconds: float) -> bytes:
    return lifetime.payload_words(client_id, 1, ZERO_NS + round(seconds * NS_PER_S)).encode() + b"..."


def test_brokers_of_a_testbed_keep_the_exact_time_over_links() -> None:
    """It dies at 2.5, which the interval gives as 3. b0 has it from b1 at once; its subscriber is away."""
    network = Network(LINE, is_testbed=True)
    publisher, subscriber = network.client("b1", "p"), network.client("b0", "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    subscriber.subscribe("t")
    subscriber.drop()
    publisher.publish("t", exact_payload("p", 2.5), qos=1, message_expiry_interval=3)
    publisher.publish("t", exact_payload("q", 2.5), qos=1, message_expiry_interval=3)  # not its own
    network.wait(20)
    assert of_log(network.nodes["b0"].log, DROPPED) == [
        (1, 2.5, DROPPED, Reason.EXPIRED), (2, 3.0, DROPPED, Reason.EXPIRED),
    ]  # fmt: skip


def test_exact_time_is_for_links_only() -> None:
    network = Network(LINE, is_testbed=True)
    publisher, subscriber = network.client("b1", "p"), network.client("b0", "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(keep_alive=0)
    subscriber.subscribe("t")
    publisher.publish("t", b"x", qos=1, message_expiry_interval=30)
    (packet,) = publications(subscriber)
    assert (packet.message_expiry_interval, packet.user_properties) == (30, [])
    publisher.read_all()
    publisher.publish("t", b"y", qos=1, user_properties=[(lifetime.EXPIRES, f"{ZERO_NS:019d}")])
    (answer,) = publisher.read_all()
    assert isinstance(answer, mqtt5.PubAckPacket)
    assert int(answer.reason_code) == 0x87
    assert publications(subscriber) == []


def test_lifetimes_on_links_have_one_form() -> None:
    assert lifetime.in_property(lifetime.property_value(12345)) == 12345
    for wrong in ("", "12345", "-000000000000012345", "x" * 19, "9" * 19, "0" * 20):
        with pytest.raises(ProtocolError):
            lifetime.in_property(wrong)
    for payload in (b"", b"p 1 ", b"p 1 @", b"p 1 @12 x", b"p 1 " + b"." * 50, b"p 1 @" + b"9" * 19 + b" "):
        assert lifetime.in_payload(payload) is None


@pytest.mark.parametrize(("expires", "left"), [(10, 1), (1, 1), (NS_PER_S, 1), (NS_PER_S + 1, 2), (5 * NS_PER_S, 5)])
def test_interval_of_what_still_lives(expires: int, left: int) -> None:
    assert lifetime.interval_s(expires + 77, 77) == left


@pytest.mark.parametrize("at_input", [True, False])
def test_restart_keeps_the_time_at_which_messages_die(at_input: bool) -> None:
    """b0 restarts at 7 and had stored three messages. 1 is dead by then, and 2 lives until 20 as before."""
    config: dict[str, Any] = {"service_in": ten_seconds} if at_input else {}
    network = Network({"b0": None}, is_durable=True, **config)
    publisher, subscriber = network.client("b0", "p"), network.client("b0", "s")
    publisher.connect(keep_alive=0)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    subscriber.subscribe("t", qos=1)
    subscriber.drop()
    lives(publisher, 5, 20, None)
    network.now_ns += 7 * NS_PER_S  # nobody is there to do what becomes due
    network.restart("b0")
    network.wait(14)
    ends = of_log(network.nodes["b0"].log, DROPPED)
    assert [(number, seconds) for number, seconds, *_ in ends] == [(1, 7.0), (2, 20.0)]
    network.wait(20)
    subscriber.connect(clean=False, expiry_s=1000, keep_alive=0)
    assert subscriber.payloads() == [b"3"]
