"""The parts of a run that are compared with predictions: after the warm-up, without faults, cut into batches.

All times are model times in nanoseconds. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from brokerbed.metrics import PHASES
from brokerbed.scenario.topology import Floats
from brokerbed.scenario.units import NS_PER_S

BATCHES = 64  # of equal compared time; analysis/estimates.py merges them until they are uncorrelated
BLOCKS_MAX = 64  # of whole periods, if rates vary; a block has as many batches as a period has phases
LONG_AGO_NS = -(1 << 62)
NOT_COMPARED = -1


class Interval(NamedTuple):
    begin_ns: int
    end_ns: int
    batch: int  # or NOT_COMPARED


def intervals(
    begin_ns: int, end_ns: int, cuts: Iterable[tuple[int, int]], marks: Iterable[int] = (), batches: int = BATCHES
) -> list[Interval]:
    """All time up to the end, without gaps. No interval extends across a batch limit, a cut limit, or a mark."""
    kept = _without(begin_ns, end_ns, cuts)
    limits = {LONG_AGO_NS, begin_ns, end_ns, *_batch_limits(kept, batches)}
    limits.update(limit for piece in kept for limit in piece)
    limits.update(mark for mark in marks if mark < end_ns)
    ordered = sorted(limits)
    compared_ns = sum(end - begin for begin, end in kept)
    pieces, passed_ns = [], 0
    for begin, end in pairwise(ordered):
        if any(piece_begin <= begin < piece_end for piece_begin, piece_end in kept):
            pieces.append(Interval(begin, end, _batch(passed_ns, compared_ns, batches)))
            passed_ns += end - begin
        else:
            pieces.append(Interval(begin, end, NOT_COMPARED))
    return pieces


def periodic_intervals(
    begin_ns: int, end_ns: int, cuts: Iterable[tuple[int, int]], marks: Iterable[int], period_ns: int
) -> list[Interval]:
    """The same for rates that vary: whole periods without cuts are compared.

    Each phase of each period belongs to one batch, whose number is that of the block times PHASES, plus the phase.
    """
    all_cuts = list(cuts)
    begins = [begin_ns + number * period_ns for number in range((end_ns - begin_ns) // period_ns)]
    whole = [
        begin for begin in begins if not any(begin < until and since < begin + period_ns for since, until in all_cuts)
    ]
    blocks = min(len(whole), BLOCKS_MAX)
    block_of = {begin: number * blocks // len(whole) for number, begin in enumerate(whole)}
    limits = {LONG_AGO_NS, begin_ns, end_ns, *(mark for mark in marks if mark < end_ns)}
    limits.update(limit for begin in begins for limit in (begin, begin + period_ns))
    for number in range(begin_ns // period_ns, end_ns // period_ns + 1):
        phases = (number * period_ns - (-period_ns * phase // PHASES) for phase in range(PHASES))
        limits.update(limit for limit in phases if begin_ns < limit < end_ns)
    pieces = []
    for begin, end in pairwise(sorted(limits)):
        block = block_of.get(begin - (begin - begin_ns) % period_ns)
        phase = begin % period_ns * PHASES // period_ns
        pieces.append(Interval(begin, end, NOT_COMPARED if block is None else block * PHASES + phase))
    return pieces


def batch_seconds(pieces: Iterable[Interval]) -> Floats:
    """The length of each batch; empty if nothing is compared."""
    compared = [piece for piece in pieces if piece.batch != NOT_COMPARED]
    lengths_ns = np.zeros(max((piece.batch + 1 for piece in compared), default=0), np.int64)
    for piece in compared:
        lengths_ns[piece.batch] += piece.end_ns - piece.begin_ns
    lengths_s: Floats = lengths_ns / NS_PER_S
    return lengths_s


def compared_ns(pieces: Iterable[Interval]) -> int:
    return sum(piece.end_ns - piece.begin_ns for piece in pieces if piece.batch != NOT_COMPARED)


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
    """The moments at which one batch of compared time ends and the next begins."""
    total_ns = sum(end - begin for begin, end in kept)
    wanted = [-(-total_ns * number // batches) for number in range(1, batches)]
    limits, passed_ns = [], 0
    for begin, end in kept:
        limits += [
            begin + amount_ns - passed_ns for amount_ns in wanted if passed_ns <= amount_ns < passed_ns + end - begin
        ]
        passed_ns += end - begin
    return limits


def _batch(passed_ns: int, total_ns: int, batches: int) -> int:
    return passed_ns * batches // total_ns
