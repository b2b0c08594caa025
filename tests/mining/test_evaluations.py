"""Jobs that evaluate their model every this many iterations: forward passes of the same kernels, some as many again."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.looks import Case, look_at
from benchmarks.accuracy.programs import make_program

# Each was wrong in its own way: what resumes after an evaluation is its own next forward pass, and no iteration
# (9089, 9649); forward kernels come so often next to the iterations that the others looked rare (9033, 9618); partial
# passes of an iteration are forward passes (9258, 9418, 10266); more evaluation than training (9129, 9562).
SEEDS = (9033, 9089, 9129, 9258, 9418, 9562, 9618, 9649, 10266)


@pytest.mark.widens(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_evaluation_is_neither_part_of_the_iteration_nor_the_end_of_it(seed: int) -> None:
    for outcome in look_at(Case("", "", seed, lambda: make_program(seed))):
        assert outcome.score.right == 1, (outcome.look, outcome.periods, outcome.wanted, outcome.reason)
        assert outcome.score.rotated >= 0.95, (outcome.look, outcome.score)
