"""What an iteration needs, and the memory after: contexts_cost.py NAME ITERATIONS none|profiler."""

import contextlib
import sys

import contexts
import torch
from iteration_cost import show_cost


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

    def step():
        contexts.train(model, optimizer, inputs, targets, 1)

    show_cost(step, iterations, recorded or contextlib.nullcontext())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
