"""Compiles a function and states how often: no one else may make it compile again."""

import sys

import torch

compilations = 0


def backend(graph, inputs):
    global compilations  # noqa: PLW0603
    compilations += 1
    return graph.forward


@torch.compile(backend=backend)
def compute(values):
    return (values.sin() + 1).sum()


if __name__ == "__main__":
    sys.stdin.readline()
    for _ in range(20):
        compute(torch.ones(8))
    with torch.profiler.profile():
        compute(torch.ones(8))
    compute(torch.ones(8))
    print(compilations)
