"""Networks whose backward pass is known: which module, on which line, made each of its nodes.

`python -m tests.programs.networks NAME… -o FOLDER` trains each for a few steps under torch.profiler, with Python
functions and modules, and writes next to its trace the nodes of the backward pass: the number and name, the innermost
module as the profiler names it, and where the forward function of the user's own module begins; and the layers of a
forward pass of the same network.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import profile

from deepprof.collectors.layers.layers_file import write_layers
from deepprof.collectors.live.model_forward import record_forward

STEPS, WARMUP = 6, 2
WIDTH, LENGTH = 64, 48  # of a vector, and of a sequence


class BasicBlock(nn.Module):
    """Two convolutions next to a shortcut; `add_` and `relu_` work in place, and `add_` only reads a number."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.down = None if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu_(y.add_(x if self.down is None else self.down(x)))


class ResNet18(nn.Module):
    """The 18 layers at a quarter of their width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(3, 2, 1)
        widths = (16, 16, 16, 32, 32, 64, 64, 128, 128)
        self.blocks = nn.Sequential(*(BasicBlock(a, b, 2 if a != b else 1) for a, b in pairwise(widths)))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.pool(torch.relu(self.norm(self.stem(x)))))
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """Four heads, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4, -1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and two matrices, each next to a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Three layers on embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(100, WIDTH), nn.Sequential(*(Layer() for _ in range(3)))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layers(self.words(x)).mean(1))


class Selecting(nn.Module):
    """Steps of a sequence taken one by one: the gradient of each is as large as the whole sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.read(x)
        state = steps[:, 0]
        for at in range(1, LENGTH):
            state = torch.tanh(state + steps[:, at])
        return self.out(state)


class Unbound(Selecting):
    """The same, all steps taken at once."""

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.read(x).unbind(1)
        state = first
        for step in others:
            state = torch.tanh(state + step)
        return self.out(state)


class Indexed(nn.Module):
    """Rows of a table by `table[rows]`."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(1000, WIDTH)), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.table[x.flatten()].unflatten(0, x.shape).mean(1))


class Selected(Indexed):
    """The same by `index_select`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.index_select(self.table, 0, x.flatten()).unflatten(0, x.shape).mean(1))


NETWORKS = {
    "resnet18": (ResNet18, lambda: torch.randn(4, 3, 64, 64)),
    "transformer": (Transformer, lambda: torch.randint(100, (8, 32))),
    "indexed": (Indexed, lambda: torch.randint(1000, (256, 8))),
    "selected": (Selected, lambda: torch.randint(1000, (256, 8))),
    # Large: where other processes hold a core up for milliseconds, backward passes must still be far the longest.
    "selecting": (Selecting, lambda: torch.randn(512, LENGTH, WIDTH)),
    "unbound": (Unbound, lambda: torch.randn(512, LENGTH, WIDTH)),
}


class Truth:
    """Which module each node of the backward pass comes from, seen from the graph itself after each module's call."""

    def __init__(self, model: nn.Module) -> None:
        self.seen, self.rows, self.open = set[object](), list[dict[str, object]](), list[nn.Module]()
        self.names, self.counts = dict[nn.Module, str](), Counter[str]()
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                parameter.register_post_accumulate_grad_hook(partial(self.accumulate, module))
            module.register_forward_pre_hook(self.enter)
            module.register_forward_hook(self.leave)

    def enter(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Name a module as the profiler does: by its class and its number among those, in the order of first calls.

        What its inputs were made by since the last note is of the module that calls it.
        """
        if self.open:
            self.note(self.open[-1], inputs)
        kind = type(module).__name__
        if module not in self.names:
            self.names[module] = f"{kind}_{self.counts[kind]}"
            self.counts[kind] += 1
        self.open.append(module)

    def leave(self, module: nn.Module, _: object, output: Tensor) -> None:
        """Note what the module made itself since the last note."""
        self.note(module, (output,))
        self.open.pop()

    def accumulate(self, module: nn.Module, _: Tensor) -> None:
        """Note that a gradient of a module's own parameter was added up: the next such node, in order."""
        self.rows.append({"sequence": None, "node": "torch::autograd::AccumulateGrad", "module": self.names[module]})

    def note(self, module: nn.Module, made: tuple[Tensor, ...]) -> None:
        """Note the new nodes behind tensors as a module's, with the line of the forward function it is called from."""
        own = next(each for each in reversed(self.open) if type(each).__module__ == __name__)
        line = type(own).forward.__code__.co_firstlineno
        for node in chain.from_iterable(self.find_new(each.grad_fn) for each in made):
            known = {"sequence": node._sequence_nr(), "node": node.name()}
            self.rows.append(known | {"module": self.names[module], "line": line})

    def find_new(self, node: object) -> Iterator[object]:
        """Yield the nodes behind one that were not seen before."""
        waiting = [node]
        while waiting:
            each = waiting.pop()
            if each is None or each in self.seen or "AccumulateGrad" in each.name():  # type: ignore[attr-defined]
                continue
            self.seen.add(each)
            yield each
            waiting += [inner for inner, _ in each.next_functions]  # type: ignore[attr-defined]


def record(name: str, folder: Path) -> None:
    """Train a network, and write its trace and its truth."""
    torch.manual_seed(0)
    kind, draw = NETWORKS[name]
    model, data = kind(), draw()
    labels = torch.randint(10, (len(data),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()

    for _ in range(WARMUP):
        step()
    truth = Truth(model)
    with profile(with_stack=True, with_modules=True) as profiler:
        for _ in range(STEPS):
            step()
    profiler.export_chrome_trace(str(folder / f"{name}.json"))
    (folder / f"{name}.truth.json").write_text(json.dumps(truth.rows))
    (folder / f"{name}.layers.json").write_bytes(write_layers(record_forward(kind(), [data]).to_json()))


def main() -> None:
    """Record the networks that are named, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=NETWORKS)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names:
        record(name, given.output)


if __name__ == "__main__":
    main()
