"""What the fuzzer of `Matcher.restore` does, for a fixed number of simple mutations."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.restoring import seeds, try_bytes


@pytest.mark.parametrize("number", range(len(seeds())))
def test_mutated_states_are_refused_or_work(number):
    choose, data = random.Random(number), seeds()[number]
    try_bytes(data)
    for _ in range(40):
        mutated = bytearray(data)
        for _ in range(choose.randint(1, 4)):
            mutated[choose.randrange(len(mutated))] = choose.choice([0, 1, 127, 128, 255, choose.randrange(256)])
        try_bytes(bytes(mutated[: choose.choice([len(mutated), choose.randrange(len(mutated))])]))


def test_the_coverage_guided_fuzzer_finds_nothing_in_a_bounded_time(tmp_path):
    pytest.importorskip("atheris", reason="atheris has wheels for Linux on x86-64 only")
    limits = ["-runs=10000", "-max_total_time=30", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.fuzz.restoring", str(tmp_path / "corpus"), *limits]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done " in done.stderr
