"""Compiles an optimizer's step, alone and in a function: compiled_step.py [HOOK]. It prints how often.

With the folder HOOK, the hook in there examines memory around steps.
"""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

compilations = 0


def backend(graph, inputs):
    global compilations  # noqa: PLW0603
    compilations += 1
    return graph.forward


def main():
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend=backend)

    @torch.compile(backend=backend)
    def train(inputs):
        layer(inputs).sum().backward()
        optimizer.step()

    for _ in range(5):
        layer(torch.ones(2, 4)).sum().backward()
        step()
        train(torch.ones(2, 4))
    print(compilations)


def look_at_memory(folder):
    space = {}
    for name in ("process", "optimizer_steps", "torch_hook"):
        space |= runpy.run_path(str(Path(folder, name + ".py")), init_globals=space)
    space["_watch_memory"](torch, SimpleNamespace(deepprof_memory=SimpleNamespace()))


if __name__ == "__main__":
    if sys.argv[1:]:
        look_at_memory(sys.argv[1])
    main()
