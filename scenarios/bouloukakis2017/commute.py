"""Writes commute.csv: `python commute.py`. A made trace that has the character of recorded journeys.

Whoever travels through long tunnels also stops at large stations: ON periods are heavy-tailed, and a long ON period is
often followed by a long OFF period. Both are lognormal, and the logarithms of an ON period and the OFF period after it
have the correlation LIKENESS. The numbers come from a fixed seed, so the file is always the same.
"""

import math
from pathlib import Path
from random import Random

SEED = "commute"
CYCLES = 100
ON_S, OFF_S = 60.0, 35.0  # means of the laws
SPREAD = 1.0  # standard deviation of the logarithms
LIKENESS = 0.7


def trace() -> str:
    draws = Random(SEED)  # noqa: S311  # an example, not a secret
    lines = ["on_s,off_s"]
    for _ in range(CYCLES):
        first, other = draws.gauss(0, 1), draws.gauss(0, 1)
        second = LIKENESS * first + math.sqrt(1 - LIKENESS**2) * other
        on_s, off_s = (
            mean_s * math.exp(SPREAD * normal - SPREAD**2 / 2) for mean_s, normal in ((ON_S, first), (OFF_S, second))
        )
        lines.append(f"{max(on_s, 0.1):.1f},{max(off_s, 0.1):.1f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("commute.csv").write_text(trace(), encoding="utf-8")
