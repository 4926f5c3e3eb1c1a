"""The relay on real sockets: what a cut holds, what it must not lose, how an end is told."""

import asyncio
import fcntl
import socket
import struct
import termios
import tracemalloc

import pytest

from brokerbed.orchestrator.grounds.relay import Relay
from tests.local.ends import Ends, reset, story

KERNEL_BYTES_MAX = 64 * 2**20  # more than the buffers of two sockets; no sender gets rid of so much
MEMORY_BYTES_MAX = 2 * 2**20
LONG = 1_000_000  # bytes: several reads of the relay, and less than what sockets buffer


@story
async def test_held_bytes_wait_and_then_arrive() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        ends.relay.hold("up", "down")
        await ends.send(child, b"up")
        await ends.send(parent, b"down")
        assert await ends.nothing(parent)
        assert await ends.nothing(child)
        assert ends.relay.is_held("up")
        assert ends.relay.is_held("down")
        ends.relay.release("up", "down")
        assert await ends.receive(parent, 2) == b"up"
        assert await ends.receive(child, 4) == b"down"
        assert not ends.relay.is_held("up")


@story
async def test_one_way_held_the_other_flows() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        ends.relay.hold("down")
        for number in range(20):
            await ends.send(parent, b"waits")
            await ends.send(child, b"%02d" % number)
            assert await ends.receive(parent, 2) == b"%02d" % number
        assert await ends.nothing(child)
        assert (ends.relay.is_held("up"), ends.relay.is_held("down")) == (False, True)
        ends.relay.release("down")
        assert await ends.receive(child, 100) == b"waits" * 20


@story
async def test_bytes_that_a_full_receiver_left_in_the_relay_are_held_too() -> None:
    """The parent does not read, so the relay has bytes that it could not write; they stay when the way is held."""
    async with Ends() as ends:
        child, parent = await ends.connect()
        sending = asyncio.ensure_future(ends.send(child, bytes(KERNEL_BYTES_MAX)))
        assert await ends.nothing(child)  # until both sockets and the relay are full
        crossed = ends.relay.ways["up"].crossed
        ends.relay.hold("up")
        assert len(await ends.receive(parent, crossed)) == crossed
        assert await ends.nothing(parent)
        assert ends.relay.is_held("up")
        assert not sending.done()
        ends.relay.release("up")
        assert len(await ends.receive(parent, KERNEL_BYTES_MAX - crossed)) == KERNEL_BYTES_MAX - crossed
        await sending


@story
async def test_half_closed_connection_still_answers() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        await ends.send(child, b"last words")
        child.shutdown(socket.SHUT_WR)
        assert await ends.receive_all(parent) == b"last words"
        await ends.send(parent, b"answer")
        parent.close()
        assert await ends.receive_all(child) == b"answer"


@story
async def test_end_is_held_and_told_after_all_bytes() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        ends.relay.hold("up", "down")
        await ends.send(child, b"x" * LONG)
        child.close()
        assert await ends.nothing(parent)
        assert ends.relay.is_held("up")
        ends.relay.release("up", "down")
        assert await ends.receive_all(parent) == b"x" * LONG
        await ends.send(parent, b"nobody hears this")
        parent.close()


@pytest.mark.parametrize("is_spoken_to", [True, False])
def test_reset_is_held_and_told_after_all_bytes(is_spoken_to: bool) -> None:
    """All bytes that had left the child: those that its system still has are lost in a crash."""

    @story
    async def test() -> None:
        async with Ends() as ends:
            child, parent = await ends.connect()
            ends.relay.hold("up")
            await ends.send(child, b"x" * LONG)
            await ends.send(parent, b"y")
            assert await ends.receive(child, 1) == b"y"
            kept = struct.unpack("i", fcntl.ioctl(child, termios.TIOCOUTQ, bytes(4)))[0]
            reset(child)
            if is_spoken_to:
                await ends.send(parent, b"nobody hears this")
            assert await ends.nothing(parent)
            assert ends.relay.is_held("up")
            ends.relay.release("up")
            received = await ends.receive_all(parent)
            assert received == b"x" * len(received)
            assert LONG - kept <= len(received) <= LONG

    test()


@story
async def test_reset_that_a_write_finds_first_is_told() -> None:
    """The relay is to read and to write when it wakes up; in which order is the event loop's affair."""
    async with Ends() as ends:
        for _ in range(50):
            child, parent = await ends.connect()
            parent.send(b"nobody hears this")
            child.send(b"last words")
            reset(child)
            assert await ends.receive_all(parent) == b"last words"
            parent.close()


@pytest.mark.parametrize("held", ["up", "down"])
def test_end_of_the_parent_is_held_only_on_its_way_down(held: str) -> None:
    @story
    async def test() -> None:
        async with Ends() as ends:
            child, parent = await ends.connect()
            ends.relay.hold(held)
            await ends.send(parent, b"bye")
            reset(parent) if held == "down" else parent.close()
            if held == "down":
                await ends.send(child, b"x" * LONG)  # to nobody, and the child must not hear of that
                assert await ends.nothing(child)
                assert ends.relay.is_held("down")
                ends.relay.release("down")
            assert await ends.receive_all(child) == b"bye"

    test()


@story
async def test_reset_without_a_cut_ends_the_other_side() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        await ends.send(parent, b"x")
        await ends.receive(child, 1)
        reset(parent)
        assert await ends.receive_all(child) == b""


@story
async def test_new_connection_while_held_is_dialled_afterwards() -> None:
    async with Ends() as ends:
        ends.relay.hold("up", "down")
        child = await ends.dial()
        await ends.send(child, b"hello")
        assert await ends.nothing(ends.listener)
        assert await ends.nothing(child)
        ends.relay.release("down")
        assert await ends.nothing(ends.listener)
        ends.relay.release("up")
        parent = await ends.accept()
        assert await ends.receive(parent, 5) == b"hello"
        await ends.send(parent, b"you")
        assert await ends.receive(child, 3) == b"you"


@story
async def test_child_that_gave_up_while_held_is_never_dialled() -> None:
    async with Ends() as ends:
        ends.relay.hold("down")
        for _ in range(100):  # more than a relay keeps
            early = await ends.dial()
            await ends.send(early, b"early")
            early.shutdown(socket.SHUT_WR)
            assert await ends.receive_all(early) == b""
            early.close()
        late = await ends.dial()
        await ends.send(late, b"late")
        ends.relay.release("down")
        parent = await ends.accept()
        assert await ends.receive(parent, 4) == b"late"
        assert await ends.nothing(ends.listener)


@story
async def test_many_connections_wait_for_their_turn() -> None:
    """All that are accepted are held; the others wait in the system, and none is lost."""
    async with Ends() as ends:
        ends.relay.hold()
        children = [await ends.dial() for _ in range(100)]
        for number, child in enumerate(children):
            await ends.send(child, b"%03d" % number)
        ends.relay.release()
        heard = []
        for _ in children:
            parent = await ends.accept()
            heard.append(await ends.receive(parent, 3))
            parent.close()
            child = children[int(heard[-1])]
            assert await ends.receive_all(child) == b""
            child.close()
        assert sorted(heard) == [b"%03d" % number for number in range(100)]


@story
async def test_refused_target_ends_the_connection() -> None:
    async with Ends() as ends:
        ends.listener.close()
        child = await ends.dial()
        with pytest.raises(ConnectionResetError):
            await ends.loop.sock_recv(child, 1)


@story
async def test_refusal_is_held_on_its_way_down() -> None:
    async with Ends() as ends:
        ends.relay.hold("up")
        child = await ends.dial()
        await ends.send(child, b"hello")
        assert await ends.nothing(child)
        ends.listener.close()
        ends.relay.release("up")
        ends.relay.hold("down")  # it is being dialled
        assert await ends.nothing(child)
        assert ends.relay.is_held("down")
        ends.relay.release("down")
        with pytest.raises(ConnectionResetError):
            await ends.loop.sock_recv(child, 1)


@story
async def test_target_that_comes_back_is_reached_again() -> None:
    async with Ends() as ends:
        _, parent = await ends.connect()
        address = ends.listener.getsockname()
        ends.listener.close()
        reset(parent)
        refused = await ends.dial()
        with pytest.raises(ConnectionResetError):
            await ends.loop.sock_recv(refused, 1)
        ends.listener = socket.create_server(address)
        ends.listener.setblocking(False)
        child, parent = await ends.connect()
        await ends.send(child, b"again")
        assert await ends.receive(parent, 5) == b"again"


@story
async def test_close_ends_everything() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        ends.relay.hold("up")
        waiting = await ends.dial()
        ends.relay.close()
        for end in (child, parent, waiting):
            assert await ends.receive_all(end) == b""
        with pytest.raises(ConnectionRefusedError):
            await ends.dial()
        ends.relay.close()


@story
async def test_close_before_open_does_nothing() -> None:
    Relay(("127.0.0.1", 1)).close()


@pytest.mark.parametrize("is_connected", [True, False])
def test_sender_is_held_back_and_memory_does_not_grow(is_connected: bool) -> None:
    @story
    async def test() -> None:
        data = bytes(range(256)) * (KERNEL_BYTES_MAX // 256)
        async with Ends() as ends:
            if is_connected:
                child, parent = await ends.connect()
            ends.relay.hold("up", "down")
            if not is_connected:
                child = await ends.dial()
            tracemalloc.start()
            sending = asyncio.ensure_future(ends.send(child, data))
            assert await ends.nothing(child)
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert not sending.done()
            assert peak_bytes < MEMORY_BYTES_MAX
            ends.relay.release("up", "down")
            if not is_connected:
                parent = await ends.accept()
            assert await ends.receive(parent, len(data)) == data
            await sending

    test()
