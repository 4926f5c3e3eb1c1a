"""Means from blocks of a simulation, with control variates: other means of the same blocks whose expectation is known.

What a block's controls have by chance above or below their expectation explains most of what its result has; the rest
is what decides the standard error. Blocks follow one another in time, so neighbours may depend on each other: the
standard error is widened by the correlation of neighbouring residuals. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from brokerbed.scenario.topology import Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    mean: float
    standard_error: float


def controlled_mean(results: Floats, controls: Sequence[Floats], other: Floats, of_other: Estimate) -> Estimate:
    """The mean where all controls are 0, and `other` has the mean that it has in a longer simulation.

    Without `other` (no values) there is only the simulation at hand.
    """
    has_other = len(other) > 0 and float(other.std()) > 0
    columns = [*controls, *([other - of_other.mean] if has_other else [])]
    used = [column for column in columns if column.std() > 0]
    matrix = np.column_stack((np.ones(len(results)), *(column / column.std() for column in used)))
    coefficients, _, rank, _ = np.linalg.lstsq(matrix, results, rcond=None)
    rest = results - matrix @ coefficients
    free = max(1, len(results) - int(rank))
    neighbours = float(rest[1:] @ rest[:-1] / (rest @ rest)) if rest.any() else 0.0
    widened = 1 + 2 * max(0.0, neighbours)
    own = float(rest @ rest) / free * float(np.linalg.pinv(matrix.T @ matrix)[0, 0]) * widened
    inherited = coefficients[-1] / other.std() * of_other.standard_error if has_other else 0.0
    return Estimate(float(coefficients[0]), sqrt(own + inherited**2))
