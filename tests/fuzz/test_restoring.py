"""What the fuzzer of `Matcher.restore` does, for a fixed number of simple mutations."""

import random

import pytest

from tests.fuzz.fuzzing import run_fuzzer
from tests.fuzz.restoring_trial import seeds, try_bytes


@pytest.mark.parametrize("number", range(len(seeds())))
def test_mutated_states_are_refused_or_work(number):
    choose, data = random.Random(number), seeds()[number]
    try_bytes(data)
    for _ in range(40):
        mutated = bytearray(data)
        for _ in range(choose.randint(1, 4)):
            mutated[choose.randrange(len(mutated))] = choose.choice([0, 1, 127, 128, 255, choose.randrange(256)])
        try_bytes(bytes(mutated[: choose.choice([len(mutated), choose.randrange(len(mutated))])]))


def test_the_coverage_guided_fuzzer_finds_nothing(tmp_path):
    run_fuzzer("tests.fuzz.restoring", tmp_path)
