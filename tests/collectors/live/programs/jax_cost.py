"""What an iteration takes, and the memory after: jax_cost.py NAME ITERATIONS none|profiler. There is one name: jax.

An iteration is 100 steps of small computations. It prints what contexts_cost.py prints.
"""

import contextlib
import sys
import tempfile
import time

import jax
import jax_contexts

PAGE_NBYTES = 4096


def main(iterations, peer):
    jax_contexts.train(3)
    times = []
    folder = tempfile.TemporaryDirectory()
    recorded = jax.profiler.trace(folder.name) if peer == "profiler" else contextlib.nullcontext()
    with folder, recorded:
        for _ in range(iterations):
            start = time.perf_counter()
            jax_contexts.train(100).block_until_ready()
            times.append(1e3 * (time.perf_counter() - start))
    late = times[len(times) // 2 :]
    times.sort()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * PAGE_NBYTES / 1e6
    print(times[len(times) // 10], times[len(times) // 2], sum(late) / len(late), resident)


if __name__ == "__main__":
    main(int(sys.argv[2]), sys.argv[3])
