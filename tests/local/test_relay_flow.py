"""Everything that is sent through a relay arrives, in order: under load, cuts at any moment, delay and bandwidth."""

import asyncio
import random
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients import precise_timer
from brokerbed.clients.precise_timer import PreciseTimer
from brokerbed.orchestrator.grounds.relay import Quality
from tests.local.ends import WAIT_S, Ends, story

BYTES = 3 * 2**20  # each way
CHUNK_BYTES_MAX = 200_000
PAUSES_S = (0, 0, 0, 0.001, 0.005)  # of a reader that is not always there
CUTS = 40
MS = 1_000_000
DELAY_NS = 20 * MS
WAYS = ("up", "down")


def qualities(rng: random.Random) -> dict[str, Quality]:
    return {
        "plain": Quality(),
        "slow": Quality(delay=lambda: rng.randrange(5 * MS)),
        "narrow": Quality(bandwidth_bit_per_s=100e6),
        "slow and narrow": Quality(delay=lambda: rng.randrange(5 * MS), bandwidth_bit_per_s=100e6),
    }


async def write(ends: Ends, end: socket.socket, data: bytes, rng: random.Random) -> None:
    start = 0
    while start < len(data):
        size = rng.choice((1, 10, 1460, 1461, CHUNK_BYTES_MAX)) + rng.randrange(1000)
        await ends.send(end, data[start : start + size])
        start += size
        await asyncio.sleep(rng.choice(PAUSES_S) if size > 10_000 else 0)
    end.shutdown(socket.SHUT_WR)


async def read(ends: Ends, end: socket.socket, rng: random.Random) -> bytes:
    data = bytearray()
    while chunk := await ends.loop.sock_recv(end, 1 + rng.randrange(CHUNK_BYTES_MAX)):
        data += chunk
        await asyncio.sleep(rng.choice(PAUSES_S))
    return bytes(data)


async def cut(ends: Ends, rng: random.Random) -> None:
    """Holds and releases at random; whatever is held stays quiet."""
    for _ in range(CUTS):
        await asyncio.sleep(rng.random() * 0.01)
        ways = rng.choice((("up",), ("down",), WAYS))
        ends.relay.hold(*ways)
        await asyncio.sleep(rng.random() * 0.01)
        assert all(ends.relay.is_held(way) for way in ways)
        ends.relay.release(*ways)


@pytest.mark.parametrize("has_cuts", [False, True])
@pytest.mark.parametrize("quality", list(qualities(random.Random())))
def test_every_byte_arrives_in_order(quality: str, has_cuts: bool) -> None:
    @story
    async def test() -> None:
        rng = random.Random(f"{quality} {has_cuts}")
        up, down = rng.randbytes(BYTES), rng.randbytes(BYTES)
        async with Ends(*(qualities(rng)[quality] for _ in WAYS)) as ends:
            child, parent = await ends.connect()
            got_down, got_up, *_ = await asyncio.gather(
                read(ends, child, rng),
                read(ends, parent, rng),
                write(ends, child, up, rng),
                write(ends, parent, down, rng),
                *([cut(ends, rng)] if has_cuts else []),
            )
        assert (got_up == up, got_down == down) == (True, True)

    test()


@story
async def test_delay_is_never_shorter_and_order_is_kept() -> None:
    async with Ends(up=Quality(delay=lambda: DELAY_NS)) as ends:
        child, parent = await ends.connect()
        sent_ns = []

        async def publish() -> None:
            for number in range(200):
                sent_ns.append(time.monotonic_ns())
                await ends.send(child, b"%03d" % number)
                await asyncio.sleep(0.0005)

        publishing = asyncio.ensure_future(publish())
        for number in range(200):
            assert await ends.receive(parent, 3) == b"%03d" % number
            assert time.monotonic_ns() - sent_ns[number] >= DELAY_NS
        await publishing
        await ends.send(parent, b"back")  # the other way has no delay of its own
        assert await ends.receive(child, 4) == b"back"


@story
async def test_end_of_a_connection_is_delayed_too() -> None:
    async with Ends(down=Quality(delay=lambda: DELAY_NS)) as ends:
        child, parent = await ends.connect()
        ended_ns = time.monotonic_ns()
        parent.close()
        assert await ends.receive_all(child) == b""
        assert time.monotonic_ns() - ended_ns >= DELAY_NS


@pytest.mark.parametrize("count", [1000, 100_000])
def test_bandwidth_is_never_exceeded(count: int) -> None:
    @story
    async def test() -> None:
        bit_per_s = 4e6
        async with Ends(up=Quality(bandwidth_bit_per_s=bit_per_s)) as ends:
            child, parent = await ends.connect()
            begin_ns = time.monotonic_ns()
            await ends.send(child, bytes(count))
            await ends.receive(parent, count)
            assert time.monotonic_ns() - begin_ns >= count * 8 * NS_PER_S / bit_per_s

    test()


@story
async def test_delay_counts_anew_for_what_was_held() -> None:
    async with Ends(up=Quality(delay=lambda: DELAY_NS)) as ends:
        child, parent = await ends.connect()
        await ends.send(child, b"a")
        ends.relay.hold("up")
        await asyncio.sleep(2 * DELAY_NS / NS_PER_S)
        assert await ends.nothing(parent)
        released_ns = time.monotonic_ns()
        ends.relay.release("up")
        assert await ends.receive(parent, 1) == b"a"
        assert time.monotonic_ns() - released_ns >= DELAY_NS


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
@pytest.mark.parametrize("has_timer_files", [True, False])
def test_timer_is_never_early(run: Callable[..., None], has_timer_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_timer_files:
        monkeypatch.setattr(precise_timer, "LIBC", None)

    async def test() -> None:
        has_fired = asyncio.Event()
        timer = PreciseTimer(asyncio.get_running_loop(), has_fired.set)
        for wait_ns in (0, 1, 300_000, 1_700_000, 5 * MS):
            has_fired.clear()
            timer.set(time.monotonic_ns() + 1000 * NS_PER_S)
            due_ns = time.monotonic_ns() + wait_ns
            timer.set(due_ns)
            assert not has_fired.is_set()
            async with asyncio.timeout(WAIT_S):
                await has_fired.wait()
            assert time.monotonic_ns() >= due_ns
        timer.set(time.monotonic_ns() + 1000 * NS_PER_S)
        timer.close()

    run(test())
