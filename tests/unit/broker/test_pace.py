"""How long a client's input has to wait, worked out by hand."""

import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.runtime.pace import Pace
from brokerbed.broker.values import NS_PER_S

MS = NS_PER_S // 1000
START_NS = 100 * NS_PER_S


def test_without_limits_nobody_waits() -> None:
    assert Pace.of(BrokerConfig()) is None


def test_first_second_is_free() -> None:
    """100 messages/s: a hundred come at once, the next ten take 100 ms."""
    pace = Pace(100, 0)
    assert pace.delay_ns(10_000, 100, START_NS) == 0
    assert pace.delay_ns(1000, 10, START_NS) == 100 * MS
    assert pace.delay_ns(1000, 10, START_NS + 100 * MS) == 100 * MS  # from then on at the rate


def test_the_limit_that_takes_longer_counts() -> None:
    pace = Pace(100, 1000)
    assert pace.delay_ns(1000, 1, START_NS) == 0
    assert pace.delay_ns(500, 10, START_NS) == 500 * MS
    assert pace.delay_ns(0, 0, START_NS + 200 * MS) == 300 * MS


def test_silence_earns_one_second_and_no_more() -> None:
    pace = Pace(0, 1000)
    assert pace.delay_ns(1000, 0, START_NS) == 0
    assert pace.delay_ns(1000, 0, START_NS + 10 * NS_PER_S) == 0
    assert pace.delay_ns(1, 0, START_NS + 10 * NS_PER_S) == MS


@pytest.mark.parametrize(("messages", "size", "slice_bytes"), [(10, 0, 256), (0, 10**9, 65_536), (1000, 10**6, 1600)])
def test_slices_are_small_where_rates_are(messages: int, size: int, slice_bytes: int) -> None:
    """A twentieth of a second at the rate, if messages have 32 bytes."""
    assert Pace(messages, size).slice_bytes == slice_bytes
