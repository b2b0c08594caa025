"""How far iterations agree with the user's ranges."""

import numpy as np
import pytest

from deepprof.metrics.mined import agreement_with
from deepprof.mining.evidence import Family
from deepprof.mining.iterations import Iterations


def iterations(count: int, period: int = 100) -> Iterations:
    first = np.arange(count) * period
    none = np.zeros(count, np.int64)
    return Iterations(first, first + period, none + period, none, np.ones(count, np.bool_))


@pytest.mark.parametrize(
    ("ranges", "matched", "given"),
    [
        ([0, 100, 200, 300, 400], 5, 5),
        ([1, 99, 202, 350, 399], 4, 5),  # one begins elsewhere
        ([0, 200, 400], 3, 5),  # of two iterations each
        ([100, 200], 2, 2),  # what is outside of them cannot be compared
        ([50, 150], 0, 1),
    ],
)
def test_matched_ranges_and_the_iterations_beside_them_are_counted(ranges, matched, given):
    found = agreement_with(Family("step", "step", np.array(ranges)), iterations(5), 100)
    assert (found.iterations, found.matched, found.given) == (len(ranges), matched, given)
    assert found.ratio == pytest.approx(2 * matched / (len(ranges) + given), abs=1e-4)


def test_many_iterations_are_counted_exactly():
    ranges = np.arange(60_001)[::3] * 100
    found = agreement_with(Family("step", "step", ranges), iterations(60_001), 100)
    assert (found.iterations, found.matched, found.given) == (20_001, 20_001, 60_001)
