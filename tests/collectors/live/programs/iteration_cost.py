"""Times of iterations, and the memory after, for the programs that measure what contexts cost."""

import time

PAGE_NBYTES = 4096


def show_cost(step, iterations, recorded):
    """Print the milliseconds of `step` at the first decile, the median, and the mean of the second half; megabytes."""
    times = []
    with recorded:
        for _ in range(iterations):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
    late = times[len(times) // 2 :]
    times.sort()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * PAGE_NBYTES / 1e6
    print(times[len(times) // 10], times[len(times) // 2], sum(late) / len(late), resident)
