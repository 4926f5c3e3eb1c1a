"""Clocks of other machines: how their offsets are told, corrected in the log, and warned of."""

import numpy as np
import pytest

from brokerbed.log.reader import DTYPE, ModelTime
from brokerbed.orchestrator.grounds.clocks import Clocks, Reading

MS = 1_000_000


def converted(clock: ModelTime, *times_ns: int) -> list[int]:
    records = np.zeros(len(times_ns), DTYPE)
    records["time_ns"] = times_ns
    return [int(it) for it in clock.of(records)["time_ns"]]


def test_offset_of_a_clock_is_taken_from_its_log() -> None:
    """Model time runs twice as fast as wall time, from 1000 to 3000; the broker's clock is 500 ahead."""
    clock = ModelTime(1000, 3000, 2.0, (500, 500))
    assert converted(clock, 1500, 2500, 3500, 3501) == [0, 2000, 4000]  # the last one is after the end


def test_clock_that_drifts_is_corrected_evenly() -> None:
    """It is 100 ahead at the beginning (1000) and 300 at the end (3000), so 200 in the middle, when it shows 2200."""
    clock = ModelTime(1000, 3000, 1.0, (100, 300))
    assert converted(clock, 1100, 2200, 3300, 3302) == [0, 1000, 2000]
    day_ns = 86_400 * 10**9  # far from zero, as wall time is: it gains 2 ms in a day
    clock = ModelTime(10**18, 10**18 + day_ns, 1.0, (0, 2 * MS))
    assert converted(clock, 10**18 + day_ns // 2 + MS) == [day_ns // 2]


def test_brokers_of_this_machine_have_no_offset() -> None:
    clocks = Clocks({"far": Reading(7 * MS, MS)}, {"far": Reading(8 * MS, 2 * MS)})
    assert clocks.offsets_ns("near") == (0, 0)
    assert clocks.offsets_ns("far") == (7 * MS, 8 * MS)
    assert clocks.as_json() == {"far": {"start": 7 * MS, "end": 8 * MS, "uncertainty": 2 * MS}}
    assert list(clocks.warnings()) == []


def test_first_reading_counts_where_there_is_no_last_one() -> None:
    assert Clocks({"far": Reading(7 * MS, MS)}).offsets_ns("far") == (7 * MS, 7 * MS)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (Reading(0, 6 * MS), "the clock of broker far's machine is known only to within 6.0 ms"),
        (Reading(-9 * MS, MS), "the clock of broker far's machine drifted by 9.0 ms during the run"),
    ],
    ids=["uncertain", "drifting"],
)
def test_clock_that_cannot_be_relied_on_is_a_warning(end: Reading, text: str) -> None:
    (line,) = Clocks({"far": Reading(0, MS)}, {"far": end}).warnings()
    assert line.startswith(text)
