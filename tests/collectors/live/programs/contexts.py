"""Programs to compare calling contexts on: contexts.py NAME ITERATIONS [TRACE]. It waits for a line.

With TRACE, torch.profiler records `train` with stacks and writes it there. CONTEXTS_ON=cuda: on a GPU.
"""

import os
import sys

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
        self.around = None
        if stride != 1 or channels_in != channels:
            self.around = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, images):
        inner = torch.relu(self.norms[0](self.first(images)))
        inner = self.norms[1](self.second(inner))
        return torch.relu(inner + (images if self.around is None else self.around(images)))


def make_resnet():
    """ResNet-18 for small images."""
    layers = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 16
    for width, stride in ((16, 1), (32, 2), (64, 2), (128, 2)):
        layers += [Block(channels, width, stride), Block(width, width, 1)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class SmallSteps(nn.Module):
    """An LSTM of small operators, a step at a time."""

    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(16 + 32, 4 * 32)
        self.out = nn.Linear(32, 10)

    def step(self, inputs, state, cell):
        take, forget, new, give = self.gates(torch.cat([inputs, state], 1)).chunk(4, 1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(take) * torch.tanh(new)
        return torch.sigmoid(give) * torch.tanh(cell), cell

    def forward(self, inputs):
        state = cell = torch.zeros(inputs.shape[0], 32, device=inputs.device)
        for each in inputs.unbind(1):
            state, cell = self.step(each, state, cell)
        return self.out(state)


class Twice(torch.autograd.Function):
    """A function with both passes in Python."""

    @staticmethod
    def forward(ctx, values):
        return values * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Transformer(nn.Module):
    """Two layers; the second is run again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)])
        self.out = nn.Linear(32, 10)

    def forward(self, inputs):
        first = Twice.apply(self.layers[0](inputs))
        return self.out(checkpoint(self.layers[1], first, use_reentrant=False).mean(1))


class Marked(nn.Module):
    """Ranges in each other, which one function of PyTorch's opens."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 10)

    def forward(self, inputs):
        with record_function("forward"):
            for each in inputs.unbind(1):
                with record_function("outer"), record_function("inner"):
                    result = self.out(each) * 2
        return result


MODELS = {
    "marked": (Marked, (8, 40, 16)),
    "resnet": (make_resnet, (4, 3, 32, 32)),
    "lstm": (SmallSteps, (8, 20, 16)),
    "transformer": (Transformer, (8, 12, 32)),
}


def train(model, optimizer, inputs, targets, iterations):
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()


def read_resident_nbytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(name, iterations, trace):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    where = os.environ.get("CONTEXTS_ON", "cpu")
    model = make().to(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(shape, device=where), torch.randint(0, 10, shape[:1], device=where)
    if trace is None:
        train(model, optimizer, inputs, targets, min(iterations, 20))
        before = read_resident_nbytes()
        train(model, optimizer, inputs, targets, iterations - min(iterations, 20))
        if "SHOW_GROWTH" in os.environ:
            print(read_resident_nbytes() - before)
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if where == "cuda" else []
    with torch.profiler.profile(activities=activities, with_stack=True) as profiled:
        train(model, optimizer, inputs, targets, iterations)
    profiled.export_chrome_trace(trace)


if __name__ == "__main__":
    sys.stdin.readline()
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
