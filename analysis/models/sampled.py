"""A distribution of times that is known from a sample: shares of times that are longer than t, and quantiles. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brokerbed.scenario.topology import Floats

LINEAR = 200  # points of the distribution, equally far apart, ...
TAIL = 200  # ... and where few times are longer, by their logarithm, down to ...
LEAST_COUNT = 20  # ... as many times of the sample


@dataclass(frozen=True, eq=False, slots=True)
class SampledTimes:
    """The times that given shares of a large sample exceed; shares decrease."""

    shares: Floats
    times_s: Floats

    def share_longer(self, times_s: Floats) -> Floats:
        """nan beyond what the sample can tell."""
        return np.interp(times_s, self.times_s, self.shares, left=1.0, right=np.nan)

    def later(self, by_s: float) -> "SampledTimes":
        return SampledTimes(self.shares, self.times_s + by_s) if by_s else self

    def quantile_s(self, share: float) -> float:
        """The time that this share of messages takes at most."""
        longer = 1 - share
        if longer < self.shares[-1]:
            return float("nan")
        return float(np.interp(-longer, -self.shares, self.times_s))


def sampled_times(parts: Sequence[Floats], mean_s: float) -> SampledTimes:
    """From parts of a sample, scaled so that it has the mean that is known better than the sample's own."""
    sample = np.sort(np.concatenate(parts))
    count = len(sample)
    least = min(0.5, LEAST_COUNT / count)
    shares = np.unique(np.concatenate((np.linspace(0, 1, LINEAR + 1)[1:], np.geomspace(least, 0.5, TAIL))))[::-1]
    places = np.minimum(((1 - shares) * count).astype(np.int64), count - 1)
    return SampledTimes(shares, sample[places] * (mean_s / float(sample.mean())))
