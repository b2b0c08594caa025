"""What an iteration takes, and the memory after: contexts_cost.py NAME ITERATIONS none|profiler.

It prints the milliseconds of an iteration, at the first decile, at the median, and the mean of the second half, and the
resident megabytes.
"""

import contextlib
import sys
import time

import contexts
import torch

PAGE_NBYTES = 4096


def main(name, iterations, peer):
    torch.manual_seed(0)
    make, shape = contexts.MODELS[name]
    shape = (32, 3, 64, 64) if name == "resnet" else shape
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(shape), torch.randint(0, 10, shape[:1])
    contexts.train(model, optimizer, inputs, targets, 3)
    activities = [torch.profiler.ProfilerActivity.CPU]
    recorded = torch.profiler.profile(activities=activities, with_stack=True) if peer == "profiler" else None
    times = []
    with recorded or contextlib.nullcontext():
        for _ in range(iterations):
            start = time.perf_counter()
            contexts.train(model, optimizer, inputs, targets, 1)
            times.append(1e3 * (time.perf_counter() - start))
    late = times[len(times) // 2 :]
    times.sort()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * PAGE_NBYTES / 1e6
    print(times[len(times) // 10], times[len(times) // 2], sum(late) / len(late), resident)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
