"""Seeds of tests that play dice themselves: the same in every run, others with `make fuzz`."""

import os
import random
import zlib

__all__ = ["EXPLORES", "draw_seed"]

EXPLORES = "DEEPPROF_EXPLORE" in os.environ


def draw_seed(test: str) -> int:
    """Return the seed of a test, and print it: pytest shows that where the test fails."""
    seed = random.SystemRandom().randrange(1 << 32) if EXPLORES else zlib.crc32(test.encode())
    print(f"seed {seed}")  # noqa: T201
    return seed
