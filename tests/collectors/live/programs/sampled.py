"""Trains two models in turn, each with its own optimizer, until its standard input has a line: sampled.py KIND.

With `late`, the second optimizer goes on alone after that. With `backward`, each parameter has its own optimizer,
which steps in the backward pass. With `after`, an operator runs for 70 s after the last step. It prints how many
iterations there were.

The library is told that a call of PyTorch's uses 10 ms: more than any budget, also where the machine is busy with
something else and this program seldom has its turn.
"""

import ctypes
import os
import sys
import threading
import time

import torch
from torch import nn


def step(model, optimizer, inputs):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()


def step_in_backward(model):
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())


def make_calls_costly():
    library = ctypes.CDLL(os.environ["DEEPPROF_INJECT"])
    library.deepprof_call_cost.argtypes = [ctypes.c_int64]
    library.deepprof_call_cost(10_000_000)


def main(kind):
    make_calls_costly()
    threads = threading.Thread(target=sys.stdin.readline)
    threads.start()
    models = [nn.Sequential(*(nn.Linear(4, 4) for _ in range(20))) for _ in range(2)]
    optimizers = [torch.optim.SGD(models[0].parameters(), lr=0.01), torch.optim.Adam(models[1].parameters())]
    if kind == "backward":
        step_in_backward(models[0])
    inputs, count = torch.randn(2, 4), 0
    while threads.is_alive() or count < 100:
        if kind == "backward":
            models[0](inputs).sum().backward()
        else:
            step(models[0], optimizers[0], inputs)
            step(models[1], optimizers[1], inputs)
        count += 1
    for _ in range(2000 if kind == "late" else 0):
        step(models[1], optimizers[1], inputs)
    until = time.monotonic() + (70 if kind == "after" else 0)
    while time.monotonic() < until:
        torch.cumsum(inputs, 0)
        time.sleep(0.001)
    print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
