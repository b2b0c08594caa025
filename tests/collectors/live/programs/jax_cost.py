"""What an iteration needs, and the memory after: jax_cost.py NAME ITERATIONS none|profiler. There is one name: jax.

An iteration is 100 steps of small computations.
"""

import contextlib
import sys
import tempfile

import jax
import jax_contexts
from iteration_cost import show_cost


def main(iterations, peer):
    jax_contexts.train(3)
    folder = tempfile.TemporaryDirectory()
    recorded = jax.profiler.trace(folder.name) if peer == "profiler" else contextlib.nullcontext()
    with folder:
        show_cost(lambda: jax_contexts.train(100).block_until_ready(), iterations, recorded)


if __name__ == "__main__":
    main(int(sys.argv[2]), sys.argv[3])
