"""Which time is compared: laws that hold for every run, and one case by hand."""

from hypothesis import given
from hypothesis import strategies as st

from brokerbed.analysis.windows import BATCHES, LONG_AGO_NS, NOT_COMPARED, Interval, compared_ns, intervals

MOMENTS = st.integers(0, 2_000)
CUTS = st.lists(st.tuples(MOMENTS, st.integers(1, 400)).map(lambda it: (it[0], it[0] + it[1])), max_size=6)


def test_by_hand() -> None:
    """100 measured from 10 on, 30 to 50 is cut: 80 in 4 batches of 20, the second one on both sides of the cut."""
    assert intervals(10, 110, [(30, 50)], marks=[33, 60], batches=4) == [
        Interval(LONG_AGO_NS, 10, NOT_COMPARED),
        Interval(10, 30, 0),
        Interval(30, 33, NOT_COMPARED),
        Interval(33, 50, NOT_COMPARED),
        Interval(50, 60, 1),
        Interval(60, 70, 1),
        Interval(70, 90, 2),
        Interval(90, 110, 3),
    ]


def test_a_cut_in_the_middle_of_a_batch() -> None:
    """From 0 to 40 without 15 to 25: 30 in 3 batches of 10; the second has 10 to 15 and 25 to 30."""
    found = intervals(0, 40, [(15, 25)], batches=3)
    assert [it for it in found if it.batch == 1] == [Interval(10, 15, 1), Interval(25, 30, 1)]


def test_a_fault_without_end_leaves_what_was_before() -> None:
    found = intervals(100, 200, [(150, 1 << 62)])
    assert (compared_ns(found), found[-1].end_ns) == (50, 200)


def test_nothing_is_left() -> None:
    assert intervals(100, 200, [(0, 300)], marks=[150]) == [
        Interval(LONG_AGO_NS, 100, NOT_COMPARED), Interval(100, 150, NOT_COMPARED), Interval(150, 200, NOT_COMPARED),
    ]  # fmt: skip


@given(begin=MOMENTS, lasts=st.integers(1, 1_500), cuts=CUTS, marks=st.lists(MOMENTS, max_size=5))
def test_laws(begin: int, lasts: int, cuts: list[tuple[int, int]], marks: list[int]) -> None:
    end = begin + lasts
    found = intervals(begin, end, cuts, marks)
    # all time up to the end, without gaps
    assert [it.begin_ns for it in found] == [LONG_AGO_NS, *(it.end_ns for it in found[:-1])]
    assert found[-1].end_ns == end
    assert all(it.begin_ns < it.end_ns for it in found)
    # moment by moment: compared is what was measured and is in no cut, and nothing reaches over a limit
    wanted = [begin <= moment < end and not any(a <= moment < b for a, b in cuts) for moment in range(end)]
    got = [False] * end
    for it in found:
        its = range(max(0, it.begin_ns), it.end_ns)
        got[its.start : its.stop] = [it.batch != NOT_COMPARED] * len(its)
    assert got == wanted
    assert compared_ns(found) == sum(wanted)
    assert not any(it.begin_ns < mark < it.end_ns for it in found for mark in marks)
    # batches come one after the other and have the same length, but for rounding to whole nanoseconds
    batches = [it.batch for it in found if it.batch != NOT_COMPARED]
    assert batches == sorted(batches)
    assert all(0 <= it < BATCHES for it in batches)
    for number in range(BATCHES):
        length = sum(it.end_ns - it.begin_ns for it in found if it.batch == number)
        assert abs(length - sum(wanted) / BATCHES) < 1
