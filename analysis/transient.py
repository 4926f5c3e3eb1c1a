"""Where the transient of a series ends: MSER-5 (White, Cobb and Spratt 2000). Pure.

The series is cut where the standard error of the mean of the rest is smallest: cutting too little leaves the bias of
the beginning, which looks like variance, and cutting too much leaves too few values. It is computed from means of five
values each, which are smoother. If the best place is in the second half, the transient has not ended in the series.
"""

import numpy as np

from brokerbed.analysis.estimates import Numbers

TOGETHER = 5  # values per mean


def transient_end(x: Numbers, n: Numbers) -> int | None:
    """How many values to cut off from the sums x and n of a series; None if the transient has not ended."""
    count = len(x) // TOGETHER
    sums, weights = (values[: count * TOGETHER].reshape(count, TOGETHER).sum(1) for values in (x, n))
    if not weights.any():
        return 0
    means = np.divide(sums, weights, out=np.full(count, sums.sum() / weights.sum()), where=weights > 0)
    left = np.arange(count, 0, -1)  # how many means are left if so many are cut
    of_rest, squares_of_rest = (values[::-1].cumsum()[::-1] for values in (means, means**2))
    errors = np.maximum(0.0, squares_of_rest - of_rest**2 / left) / left**2
    best = int(errors[: count // 2 + 1].argmin()) if count else 0
    return None if count and best >= count // 2 else best * TOGETHER
