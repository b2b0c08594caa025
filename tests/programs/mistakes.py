"""The programs: one healthy, each of the others with the mistake that its docstring names.

A program prepares itself and returns the loop that is recorded.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.programs.model import BATCH, FEATURES, Blocks, build_model, draw_batch, each_batch, load_batches, train
from tests.programs.recorder import Recorder

__all__ = ["Loop", "fast_loader", "healthy", "item", "kept_graph", "logging", "recompiling_shapes", "slow_loader"]

Loop = Callable[[Recorder], None]
WARMUP = 3  # iterations before the recording, in which libraries set themselves up
RECORDS = 2_000  # of the log that is written anew in every iteration


def prepare(recorder: Recorder, width: int | None = None) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """Return a model and its optimizer, both warm."""
    model = build_model(recorder, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    features, labels = (part.to(recorder.device) for part in draw_batch())
    for _ in range(WARMUP):
        train(model, optimizer, features, labels)
    return model, optimizer


def healthy(recorder: Recorder) -> Loop:
    """No mistake: the batches are where they are needed."""
    model, optimizer = prepare(recorder)
    batches = [[part.to(recorder.device) for part in draw_batch()] for _ in range(recorder.iterations)]

    def loop(recorder: Recorder) -> None:
        for number in recorder.numbers():
            train(model, optimizer, *batches[number])

    return loop


class TextBlocks(Blocks):
    """Blocks that are parsed and augmented value by value, each time they are requested."""

    def __init__(self, iterations: int) -> None:
        super().__init__(iterations)
        self.lines = [json.dumps(block.flatten().tolist()) for block in self.features]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        values = [value + random.gauss(0, 0.01) for value in json.loads(self.lines[index])]
        return torch.tensor(values).view(-1, FEATURES), self.labels[index]


def train_on(recorder: Recorder, blocks: Blocks) -> Loop:
    """Return the loop that trains on what a loader gives."""
    model, optimizer = prepare(recorder)
    loader = load_batches(blocks)

    def loop(recorder: Recorder) -> None:
        for features, labels in each_batch(recorder, loader):
            train(model, optimizer, features, labels)

    return loop


def slow_loader(recorder: Recorder) -> Loop:
    """Batches are made of text on the training thread."""
    return train_on(recorder, TextBlocks(recorder.iterations))


def fast_loader(recorder: Recorder) -> Loop:
    """The same as slow-loader, put right: the text was parsed once."""
    return train_on(recorder, Blocks(recorder.iterations))


def item(recorder: Recorder) -> Loop:
    """A number is fetched after every layer. It costs nothing where there is no device to wait for."""
    model, optimizer = prepare(recorder, None if recorder.device.type == "cpu" else 1024)
    features, labels = (part.to(recorder.device) for part in draw_batch())

    def loop(recorder: Recorder) -> None:
        for _ in recorder.numbers():
            optimizer.zero_grad()
            values, peaks = features, []
            for layer in model:
                values = layer(values)
                peaks.append(values.detach().max().item())
            loss = nn.functional.cross_entropy(values, labels)
            loss.backward()
            optimizer.step()

    return loop


def kept_graph(recorder: Recorder) -> Loop:
    """The sum of all losses is kept with its history, and every iteration goes back through all of it.

    Only the biases are trained: PyTorch refuses to go back through weights that changed.
    """
    model, _ = prepare(recorder)
    for layer in model:
        for parameter in layer.parameters():
            parameter.requires_grad_(parameter.dim() == 1)
    biases = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(biases, lr=0.01)
    features, labels = (part.to(recorder.device) for part in draw_batch())

    def loop(recorder: Recorder) -> None:
        total = torch.zeros((), device=recorder.device)
        for _ in recorder.numbers():
            optimizer.zero_grad()
            total = total + nn.functional.cross_entropy(model(features), labels)
            total.backward(retain_graph=True)
            optimizer.step()

    return loop


def recompiling_shapes(recorder: Recorder) -> Loop:
    """Every batch has another number of rows, and the model is compiled for every number anew."""
    torch._dynamo.config.recompile_limit = 10 * recorder.iterations
    model, optimizer = prepare(recorder)
    compiled = torch.compile(model, dynamic=False, backend="eager")
    train(compiled, optimizer, *(part.to(recorder.device) for part in draw_batch()))
    rows = [BATCH - 8 * (number + 1) for number in range(recorder.iterations)]
    batches = [[part.to(recorder.device) for part in draw_batch(count)] for count in rows]

    def loop(recorder: Recorder) -> None:
        for number in recorder.numbers():
            train(compiled, optimizer, *batches[number])

    return loop


def logging(recorder: Recorder) -> Loop:
    """The whole history of losses is written to a file in every iteration."""
    model, optimizer = prepare(recorder)
    batch = [part.to(recorder.device) for part in draw_batch()]

    def loop(recorder: Recorder) -> None:
        with tempfile.TemporaryFile("w") as log:
            for number in recorder.numbers():
                loss = train(model, optimizer, *batch).item()
                log.seek(0)
                json.dump([{"iteration": number, "record": k, "loss": loss} for k in range(RECORDS)], log)

    return loop
