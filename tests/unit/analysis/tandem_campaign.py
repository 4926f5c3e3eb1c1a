"""The tandem model against all simulated truths: `python -m tests.unit.analysis.tandem_campaign`, `make tandem-campaign`.

Exit code 1 if a set is more than 3% off, or more than chance explains. It takes one to four seconds of CPU time per set.
"""

import sys
import time

import numpy as np

from tests.unit.analysis.tandem_truth import table
from tests.unit.analysis.test_tandem import estimated

BOUND, STANDARD_ERRORS = 0.03, 4.0


def main() -> int:
    errors, wrong = [], 0
    for truth in table():
        begun = time.process_time()
        found = estimated(truth.tandem)
        error = found.mean / truth.mean_s - 1
        deviation = (found.mean - truth.mean_s) / np.hypot(found.standard_error, truth.standard_error_s)
        is_wrong = abs(error) > BOUND or abs(deviation) > STANDARD_ERRORS
        wrong += is_wrong
        errors.append(abs(error))
        print(
            f"set {truth.number:2}: truth {truth.mean_s:10.4f} +- {truth.standard_error_s / truth.mean_s:6.2%},"
            f" model {found.mean:10.4f} +- {found.standard_error / found.mean:6.2%}, error {error:+7.2%},"
            f" {deviation:+5.1f} standard errors, {time.process_time() - begun:4.1f} s{' WRONG' if is_wrong else ''}",
            flush=True,
        )
    print(f"{len(errors)} sets: worst error {max(errors):.2%}, mean error {np.mean(errors):.2%}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
