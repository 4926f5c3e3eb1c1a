"""Where the smallest of several functions changes: functions whose crossings are known, or found by brute force."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from brokerbed.analysis.envelope import NONE, Change, changes, changes_of_whole
from brokerbed.scenario.topology import Floats

Function = Callable[[float], float]


def found(functions: Sequence[Function], low: float, high: float) -> list[Change]:
    def values(places: Sequence[float], which: Sequence[int]) -> Floats:
        return np.array([[functions[number](place) for number in which] for place in places])

    return changes(values, len(functions), low, high)


def orders(of: Sequence[Change]) -> list[tuple[int, int]]:
    return [(change.before, change.after) for change in of]


def test_one_crossing_is_exact() -> None:
    (change,) = found([math.exp, lambda x: 2 + x * x], 0, 3)
    assert orders([change]) == [(0, 1)]
    assert math.exp(change.at) == pytest.approx(2 + change.at**2, rel=1e-12)


def test_a_function_that_is_smallest_for_a_short_while_is_found() -> None:
    """1 - 1e-3 at its lowest, over a thousandth of the range."""
    both = found([lambda _: 1.0, lambda x: 1 - 1e-3 + 4e3 * (x - 0.7) ** 2], 0, 1)
    assert orders(both) == [(0, 1), (1, 0)]
    assert [it.at for it in both] == pytest.approx([0.7 - 5e-4, 0.7 + 5e-4], abs=1e-12)


def test_many_crossings_of_two_functions_are_all_found() -> None:
    found_ones = found([lambda _: 1.0, lambda x: 1 + 0.01 * math.cos(40 * x)], 0, 3)
    expected = [(n + 0.5) * math.pi / 40 for n in range(38)]
    assert [it.at for it in found_ones] == pytest.approx(expected, abs=1e-10)


def test_equal_functions_do_not_cross() -> None:
    assert found([lambda x: 1 + x, lambda x: (1 + x) * (1 + 1e-13 * math.sin(50 * x))], 0, 3) == []
    (change,) = found([lambda x: 1 + x, lambda x: (1 + x) * (1 + 1e-13 * math.sin(50 * x)), lambda x: 3 - x], 0, 3)
    assert change.at == pytest.approx(1)
    assert change.after == 2


def test_functions_that_become_equal_do_not_cross_there() -> None:
    """The second is below the first by exp(-20 x), which soon is nothing."""
    both = found([lambda x: 2 + x, lambda x: 2 + x - math.exp(-20 * x), lambda x: 6 - x], 0, 5)
    assert [it.at for it in both] == pytest.approx([2])
    assert both[0].after == 2


def test_a_value_that_ends_is_found_exactly() -> None:
    both = found([lambda x: 1.0 if x < 2 else math.inf, lambda x: x + 2 if x < 2.5 else math.inf], 0, 3)
    assert orders(both) == [(0, 1), (1, NONE)]
    assert [it.at for it in both] == pytest.approx([2, 2.5], abs=1e-12)


def test_a_bend_does_no_harm() -> None:
    both = found([lambda x: 0.05 + abs(x - 1.23456), lambda _: 0.1], 0, 3)
    assert [it.at for it in both] == pytest.approx([1.18456, 1.28456], abs=1e-12)


def test_zero_is_the_smallest() -> None:
    assert found([lambda _: 0.0, lambda x: 1e-9 + x], 0, 3) == []


@pytest.mark.parametrize("seed", range(12))
def test_random_functions_against_a_fine_grid(seed: int) -> None:
    draw = random.Random(seed)
    shapes = [(draw.uniform(0.5, 2), draw.uniform(0, 3), draw.uniform(0.1, 4), draw.uniform(0, 1)) for _ in range(6)]
    functions: list[Function] = [
        lambda x, s=shape: s[0] * math.exp(-s[2] * x) + s[3] * x + 0.1 * (2 + math.sin(s[1] + s[2] * x))  # type: ignore[misc]
        for shape in shapes
    ]
    changed = found(functions, 0, 4)
    step = 1e-3
    cheapest = [min(range(6), key=lambda number: functions[number](place * step)) for place in range(4001)]
    expected = [
        ((place + 0.5) * step, before, after)
        for place, (before, after) in enumerate(pairwise(cheapest))
        if before != after
    ]
    assert orders(changed) == [(before, after) for _, before, after in expected]
    assert [it.at for it in changed] == pytest.approx([at for at, _, _ in expected], abs=0.51 * step)
    for it in changed:
        assert functions[it.before](it.at) == pytest.approx(functions[it.after](it.at), rel=1e-11)


def test_whole_numbers_are_halved_to_the_first_that_changes() -> None:
    def values(places: Sequence[float], which: Sequence[int]) -> Floats:
        return np.array([[[1000.0, 2 * place][number] for number in which] for place in places])

    (change,) = changes_of_whole(values, 2, [1, 64, 10_000])
    assert change == Change(500, 1, 0)  # 2 * 500 equals 1000, and of equal ones the first counts
