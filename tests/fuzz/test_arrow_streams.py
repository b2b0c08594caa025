"""What the fuzzer of the wire does, for a fixed number of simple mutations, and of the fuzzer's runs."""

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.arrow_trial import limit_memory, seeds, try_bytes
from tests.fuzz.fuzzing import run_fuzzer
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
NUMBERS = [0, 1, 4, 8, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def mutate(choose, data):
    """Return the bytes with one to three of a few changes: a bit, a byte, a number, a copied or missing piece."""
    mutated = bytearray(data)
    for _ in range(choose.randint(1, 3)):
        at, number = choose.randrange(len(mutated)), choose.choice([*NUMBERS, choose.getrandbits(64)])
        kind = choose.randrange(7)
        if kind == 0:
            mutated[at] ^= 1 << choose.randrange(8)
        elif kind == 1:
            mutated[at] = choose.randrange(256)
        elif kind in {2, 3}:
            at = 1 + (at & ~3)
            mutated[at : at + 4] = struct.pack("<I", number & 0xFFFFFFFF)
        elif kind in {4, 5}:
            at = 1 + (at & ~7)
            mutated[at : at + 8] = struct.pack("<Q", number)
        else:
            end, source = at + choose.randrange(1, 64), choose.randrange(len(mutated))
            mutated[at:end] = mutated[source : source + end - at]
    return bytes(mutated)


@pytest.mark.parametrize("number", range(len(seeds())))
def test_seeds_pass_and_what_is_torn_is_refused(number):
    data = seeds()[number]
    try_bytes(data)
    for end in range(0, len(data), 7):
        try_bytes(data[:end])


def test_mutated_streams_are_refused_or_sound_in_bounded_memory():
    command = [sys.executable, "-m", "tests.fuzz.test_arrow_streams"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "panicked" not in done.stderr, done.stderr[-2000:]


def main():
    choose = random.Random(7)
    given = seeds()
    for data in given:
        try_bytes(data)
    limit_memory()
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5000):
        try_bytes(mutate(choose, choose.choice(given)))


def test_the_coverage_guided_fuzzer_finds_nothing(tmp_path):
    run_fuzzer("tests.fuzz.arrow_streams", tmp_path)


if __name__ == "__main__":
    main()
