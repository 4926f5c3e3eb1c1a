"""When the helper that repairs a link returns; the kernel's table of connections is written by hand."""

from collections.abc import Iterator

import pytest

from brokerbed.orchestrator.grounds import cutter

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(local: str, remote: str, state: str, unacknowledged: int, retransmissions: int, inode: int) -> str:
    return (
        f"   0: {local} {remote} {state} {unacknowledged:08X}:00000000 01:00000014 {retransmissions:08X}  1000"
        f"        0 {inode} 2 0000000000000000\n"
    )


def test_only_established_connections_with_the_other_end_count() -> None:
    """172.18.0.2 is 020012AC in the table of a little-endian machine, port 1883 is 075B."""
    table = HEAD + "".join([
        row("030012AC:9C40", "020012AC:075B", "01", 50, 3, 71),  # the child's own
        row("030012AC:075B", "020012AC:9C41", "01", 7, 0, 72),  # as a parent sees one
        row("030012AC:9C42", "020012AC:075B", "02", 1, 1, 73),  # only being made
        row("030012AC:9C43", "090012AC:075B", "01", 9, 9, 74),  # with somebody else
        row("030012AC:9C44", "020012AC:0050", "01", 9, 9, 75),  # to another port
    ])  # fmt: skip
    assert cutter.sockets_to("172.18.0.2", 1883, table) == {"71": (50, 3), "72": (7, 0)}


@pytest.mark.parametrize(
    ("looks", "is_moving"),
    [
        ([{}], True),
        ([{"1": (0, 0)}], True),
        ([{"1": (50, 4)}, {"1": (50, 4)}, {"1": (0, 0)}], True),
        ([{"1": (50, 4)}, {"1": (90, 4)}, {"1": (70, 0)}], True),
        ([{"1": (50, 4)}, {}], True),
        ([{"1": (50, 4)}] * 1000, False),
        ([{"1": (50, 4), "2": (0, 0)}] * 1000, False),
    ],
)
def test_repair_waits_until_what_was_sent_is_acknowledged(
    looks: list[cutter.Sockets], is_moving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutter, "SETTLE_S_MAX", 0.1)
    monkeypatch.setattr(cutter, "SETTLE_POLL_S", 0.001)
    left: Iterator[cutter.Sockets] = iter(looks)
    assert cutter.wait_until_moving(lambda: next(left)) is is_moving
