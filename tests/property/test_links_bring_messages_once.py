"""Links that are cut, and brokers that are restarted, while messages at QoS 1 of one publisher overtake each other.

With emulated service per copy, messages of different copies go through stages of their own, so a later one may cross a
link first. Whatever happens to links and brokers, every message reaches the subscriber at the root exactly once, and
those of one copy in their order.
"""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerbed.broker.core.link import PACKET_IDS, Link
from brokerbed.broker.values import NS_PER_S
from tests.core_client import FOREVER_S
from tests.core_network import Network

CHAIN = {"a": None, "b": "a", "c": "b"}
COPIES = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, COPIES - 1)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.sampled_from(["hold", "cut", "release"]), st.sampled_from(["b", "c"])),
        st.tuples(st.just("restart"), st.just("b")),
    ),
    max_size=60,
)


def test_message_that_was_overtaken_before_a_cut_is_not_taken_for_a_copy() -> None:
    """The first message takes 10 s at the link's output, the second, of another copy, 1 s; the first is lost in a cut."""
    demands = iter([10 * NS_PER_S, 1 * NS_PER_S])
    network = Network({"a": None, "b": "a"}, service_link=lambda: next(demands), service_per_copy=True)
    publisher, subscriber = network.client("b", "p"), network.client("a", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("+/t", qos=1)
    publisher.publish("copy0/t", b"first", qos=1)
    publisher.publish("copy1/t", b"second", qos=1)
    network.wait(2)
    assert subscriber.payloads() == [b"second"]
    network.hold("b")
    network.wait(10)  # the first one is sent now, and does not arrive
    network.cut("b")
    network.join("b")
    assert subscriber.payloads() == [b"first"]
    network.cut("b")
    network.join("b")
    assert subscriber.payloads() == []


def disturb(network: Network, held: set[str], action: str, value: int | str) -> None:
    child = str(value)
    if action == "wait":
        network.wait(int(value) / 10)
    elif action == "restart":
        network.restart("b")
        held.clear()
        network.join("b")
        network.join("c")
    elif action == "hold" and child not in held:
        network.hold(child)
        held.add(child)
    elif action == "release" and child in held:
        network.release(child)
        held.discard(child)
    elif action == "cut":
        network.cut(child)
        held.discard(child)
        network.join(child)


FOUND = [  # the restarted broker had sent the last of these messages first
    *[("publish", copy) for copy in (0, 0, 0, 0, 0, 0, 1, 1, 2)], ("wait", 22), ("hold", "b"), ("wait", 17), ("restart", "b")
]  # fmt: skip


@given(STEPS, st.integers(0, 2**32), st.booleans())
@example(FOUND, 1, False)
@settings(max_examples=300, deadline=None)
def test_every_message_arrives_once_and_copies_keep_their_order(
    steps: list[tuple[str, int | str]], seed: int, is_acknowledged: bool
) -> None:
    draws = random.Random(seed)
    network = Network(
        CHAIN,
        is_durable=True,
        service_in=lambda: draws.randrange(NS_PER_S),
        service_link=lambda: draws.randrange(3 * NS_PER_S),
        service_per_copy=True,
    )
    subscriber = network.client("a", "s")
    subscriber.connect(expiry_s=FOREVER_S)
    subscriber.subscribe("#", qos=1)
    publisher = network.client("c", "p")
    publisher.connect()
    held: set[str] = set()
    published: list[bytes] = []
    got: list[bytes] = []
    for action, value in steps:
        if action == "publish":
            payload = f"{value} {len(published)}".encode()
            publisher.publish(f"copy{value}/t", payload, qos=1)
            published.append(payload)
        else:
            disturb(network, held, action, value)
        if is_acknowledged:
            got += subscriber.payloads()
    for child in sorted(held):
        network.release(child)
    network.wait(1000)
    got += subscriber.payloads()
    network.wait(1)
    got += subscriber.payloads()
    assert sorted(got) == sorted(published)
    for copy in range(COPIES):
        mine = b"%d " % copy
        assert [it for it in got if it.startswith(mine)] == [it for it in published if it.startswith(mine)]


@given(st.integers(1, PACKET_IDS), st.integers(0, 20_000), st.integers(1, 20_000))
def test_packet_ids_before_and_after_the_last_are_told_apart_all_around_the_circle(
    last: int, before: int, after: int
) -> None:
    def id_at(distance: int) -> int:
        return (last - 1 + distance) % PACKET_IDS + 1

    link = Link("b", is_parent=False)
    assert not link.has_received(id_at(-before))  # nothing has come so far
    link.last_received_id = last
    assert link.has_received(id_at(-before))
    assert not link.has_received(id_at(after))
