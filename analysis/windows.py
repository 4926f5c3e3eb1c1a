"""Which parts of a run are compared with predictions: after the warm-up, without the time of faults, cut into batches.

Times of model, in nanoseconds. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

BATCHES = 64  # of equal compared time; merged in analysis/estimates.py until they do not depend on one another
LONG_AGO_NS = -(1 << 62)
NOT_COMPARED = -1


class Interval(NamedTuple):
    begin_ns: int
    end_ns: int
    batch: int  # or NOT_COMPARED


def intervals(
    begin_ns: int, end_ns: int, cuts: Iterable[tuple[int, int]], marks: Iterable[int] = (), batches: int = BATCHES
) -> list[Interval]:
    """All time up to the end without gaps; no interval reaches over the limits of a batch, of a cut, or over a mark."""
    kept = _without(begin_ns, end_ns, cuts)
    limits = {LONG_AGO_NS, begin_ns, end_ns, *(it for piece in kept for it in piece), *_batch_limits(kept, batches)}
    limits.update(it for it in marks if it < end_ns)
    ordered = sorted(limits)
    compared_ns = sum(end - begin for begin, end in kept)
    found, passed_ns = [], 0
    for begin, end in pairwise(ordered):
        if any(piece_begin <= begin < piece_end for piece_begin, piece_end in kept):
            found.append(Interval(begin, end, _batch(passed_ns, compared_ns, batches)))
            passed_ns += end - begin
        else:
            found.append(Interval(begin, end, NOT_COMPARED))
    return found


def compared_ns(found: Iterable[Interval]) -> int:
    return sum(it.end_ns - it.begin_ns for it in found if it.batch != NOT_COMPARED)


def _without(begin_ns: int, end_ns: int, cuts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    kept, at_ns = [], begin_ns
    for cut_begin, cut_end in sorted(cuts):
        if cut_begin > at_ns:
            kept.append((at_ns, min(cut_begin, end_ns)))
        at_ns = max(at_ns, cut_end)
        if at_ns >= end_ns:
            break
    if at_ns < end_ns:
        kept.append((at_ns, end_ns))
    return [(begin, end) for begin, end in kept if begin < end]


def _batch_limits(kept: Sequence[tuple[int, int]], batches: int) -> list[int]:
    """The moments at which a batch of compared time is full."""
    total_ns = sum(end - begin for begin, end in kept)
    wanted = [-(-total_ns * number // batches) for number in range(1, batches)]
    limits, passed_ns = [], 0
    for begin, end in kept:
        limits += [begin + it - passed_ns for it in wanted if passed_ns <= it < passed_ns + end - begin]
        passed_ns += end - begin
    return limits


def _batch(passed_ns: int, total_ns: int, batches: int) -> int:
    return passed_ns * batches // total_ns
