"""Training programs whose layers are known: each module's call is a range in the trace, which the alignment never sees.

`python -m tests.programs.layered NAME… -o FOLDER` trains each for a few steps under torch.profiler and writes its
trace, and next to it the layers that a dry run of another, equal model has.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import profile, record_function
from torch.utils.checkpoint import checkpoint

from deepprof.collectors.layers.layers_file import write_layers
from deepprof.collectors.live.model_forward import record_forward

STEPS = 3
TRUTH = "truth|"  # begins the name of a range, before the path, the class and the number of the call


class Bottleneck(nn.Module):
    """Three convolutions next to a shortcut, with one ReLU that is called three times."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != 4 * width:
            down = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(down, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet50(nn.Module):
    """The 50 layers at an eighth of their width."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inputs = 8
        for stage, (blocks, width) in enumerate(zip((3, 4, 6, 3), (8, 16, 32, 64), strict=True), 1):
            layer = nn.Sequential()
            for block in range(blocks):
                layer.append(Bottleneck(inputs, width, 2 if block == 0 and stage > 1 else 1))
                inputs = 4 * width
            self.add_module(f"layer{stage}", layer)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ResidualBlock(nn.Module):
    """Two convolutions next to a shortcut, with one ReLU that is called twice."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if stride > 1 or inputs != width:
            down = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(down, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResidualNet(nn.Module):
    """The 18 layers at an eighth of their width, named and called as the common ones are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inputs = 8
        for stage, width in enumerate((8, 16, 32, 64), 1):
            first = ResidualBlock(inputs, width, 2 if stage > 1 else 1)
            self.add_module(f"layer{stage}", nn.Sequential(first, ResidualBlock(width, width, 1)))
            inputs = width
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VisionBlock(nn.Module):
    """Attention by PyTorch's own module, and two matrices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    """Patches, a token for the class, and six equal blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, 32, 8, 8), nn.ModuleList(VisionBlock(32) for _ in range(6))
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class TiedLayer(nn.Module):
    """A layer of a language model, which may be computed again in the backward pass."""

    def __init__(self, width: int, *, again: str = "") -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.again = again

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))

    def run(self, x: Tensor) -> Tensor:
        x = self.attend(x)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    def forward(self, x: Tensor) -> Tensor:
        if self.again:
            return checkpoint(self.run, x, use_reentrant=self.again == "reentrant")
        return self.run(x)


class TiedTransformer(nn.Module):
    """Words in and words out through one matrix, which belongs to two modules."""

    def __init__(self, again: str = "") -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(100, 32), nn.Sequential(*(TiedLayer(32, again=again) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 100, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.words(x))))[:, -1]


class Recurrent(nn.Module):
    """Two LSTMs, the second of which is a cell that runs step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(100, 16), nn.LSTM(16, 16, num_layers=2, batch_first=True)
        self.cell, self.out = nn.LSTMCell(16, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.lstm(self.words(x))[0].unbind(1)
        state = None
        for step in steps:
            state = self.cell(step, state)
        assert state is not None
        return self.out(state[0])


class Shared(nn.Module):
    """One layer under two names, called three times in a row, and one branch within another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.again = self.first
        self.tower = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), self.first)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.again(self.first(x)))
        x = x + self.tower(torch.tanh(x)) * 0.5
        return self.head(self.tower(x))


Draw = Callable[[], Tensor]
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Draw]] = {
    "resnet18": (ResidualNet, lambda: torch.rand(2, 3, 32, 32)),
    "resnet50": (ResNet50, lambda: torch.rand(2, 3, 32, 32)),
    "vit": (VisionTransformer, lambda: torch.rand(2, 3, 32, 32)),
    "tied": (TiedTransformer, lambda: torch.randint(100, (2, 8))),
    "checkpoint": (partial(TiedTransformer, "plain"), lambda: torch.randint(100, (2, 8))),
    "reentrant": (partial(TiedTransformer, "reentrant"), lambda: torch.randint(100, (2, 8))),
    "lstm": (Recurrent, lambda: torch.randint(100, (4, 6))),
    "shared": (Shared, lambda: torch.rand(4, 32)),
    "autocast": (TiedTransformer, lambda: torch.randint(100, (2, 8))),
    "micro": (VisionTransformer, lambda: torch.rand(2, 3, 32, 32)),
}
MICRO = 3  # batches whose gradients are added up


class TruthRanges:
    """A range around each call of every module, with the path that `named_modules` first gives it, in attributes."""

    def __init__(self, model: nn.Module) -> None:
        self.calls, self.open = Counter[str](), list[AbstractContextManager[None]]()
        for path, module in model.named_modules():
            name = f"{path or type(model).__name__}|{type(module).__name__}"
            module.register_forward_pre_hook(partial(self.enter, name, is_model=not path))
            module.register_forward_hook(self.leave, always_call=True)  # a checkpoint stops early

    def enter(self, name: str, *_: object, is_model: bool) -> None:
        if is_model:
            self.calls.clear()
        self.open.append(record_function(f"{TRUTH}{name}|{self.calls[name]}"))
        self.calls[name] += 1
        self.open[-1].__enter__()

    def leave(self, *_: object) -> None:
        self.open.pop().__exit__(None, None, None)


def train(name: str, model: nn.Module, draw: Draw) -> None:
    """Train a few steps, with what a program does besides: batches moved, losses read, a rate that goes down."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(MICRO if name == "micro" else 1):
            data = draw()
            data = data.mul(2).sub(1).add(0.1).to(torch.float64).to(torch.float32) if data.is_floating_point() else data
            with ExitStack() as stack:
                if name == "autocast":
                    stack.enter_context(torch.autocast("cpu", torch.bfloat16))
                loss = nn.functional.cross_entropy(model(data), torch.zeros(len(data), dtype=torch.int64))
            loss.backward()
            loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def record(name: str, folder: Path) -> None:
    """Train a program, and write its trace and the layers of its model."""
    torch.manual_seed(0)
    build, draw = PROGRAMS[name]
    model = build()
    truth = TruthRanges(model)
    train(name, model, draw)
    with profile() as profiler:
        train(name, model, draw)
    assert not truth.open
    profiler.export_chrome_trace(str(folder / f"{name}.json"))
    layers = record_forward(build(), [draw()]).to_json()
    (folder / f"{name}.layers.json").write_bytes(write_layers(layers))


def main() -> None:
    """Record the programs that are named, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=PROGRAMS)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names:
        record(name, given.output)


if __name__ == "__main__":
    main()
