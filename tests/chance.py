"""What tests leave to chance: seeds and numbers of examples, the same in every run, others with `make fuzz`."""

import os
import random
import zlib

from hypothesis import settings

__all__ = ["EXPLORES", "USUAL_EXAMPLES", "draw_seed", "examples"]

EXPLORES = "DEEPPROF_EXPLORE" in os.environ
USUAL_EXAMPLES = 100  # what a test means by its number, where it states none; `make test` examines a quarter of them


def draw_seed(test: str) -> int:
    """Return the seed of a test, and print it: pytest shows that where the test fails."""
    seed = random.SystemRandom().randrange(1 << 32) if EXPLORES else zlib.crc32(test.encode())
    print(f"seed {seed}")  # noqa: T201
    return seed


def examples(number: int) -> int:
    """Return how many of a test's examples this run examines: all with `--hypothesis-profile=all`."""
    return max(1, number * settings().max_examples // USUAL_EXAMPLES)
