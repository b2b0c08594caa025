"""One rank of two that train an MLP of six blocks in parallel over gloo: by data, by tensors or in a pipeline.

`python -m tests.programs.parallel_ranks KIND RANK FOLDER` writes the trace of one rank into the folder, where the ranks
also meet. The model is made while the profiler records, so that its memory is among what was recorded.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

KINDS = ("data", "tensor", "pipeline")
RANKS, BLOCKS, ITERATIONS, MICRO_BATCHES = 2, 6, 8, 2
BATCH, WIDTH, HIDDEN, OUTPUTS = 64, 128, 512, 2048
PATIENCE = timedelta(minutes=5)
Step = Callable[[torch.Tensor, torch.Tensor], None]


class SumGradient(torch.autograd.Function):
    """The tensor itself, whose gradient is the sum of all ranks' ones: where a layer that is cut by columns begins."""

    @staticmethod
    def forward(_: Any, given: torch.Tensor) -> torch.Tensor:
        return given.view_as(given)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class SumResult(torch.autograd.Function):
    """The sum of all ranks' tensors: where a layer that is cut by rows ends."""

    @staticmethod
    def forward(_: Any, part: torch.Tensor) -> torch.Tensor:
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Block(nn.Module):
    """Two linear layers with a residual path; of `parts` ranks each has its share of the hidden units."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN // parts), nn.Linear(HIDDEN // parts, WIDTH)
        self.cut = parts > 1

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        start = SumGradient.apply(given) if self.cut else given
        result = self.down(torch.relu(self.up(start)))
        return given + (SumResult.apply(result) if self.cut else result)


class Head(nn.Module):
    """A linear layer to many outputs, of which each of `parts` ranks has its share."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.linear, self.cut = nn.Linear(WIDTH, OUTPUTS // parts), parts > 1

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.linear(SumGradient.apply(given) if self.cut else given)


def train_on_data(_: int) -> Step:
    """Each rank has the model, and its own batch.

    Gradients are reduced where they are, not in the buckets of DistributedDataParallel: threads of gloo keep the tensor
    of their last collective until the next, so that a bucket which is given up may stay, or not.
    """
    model = nn.Sequential(*(Block(1) for _ in range(BLOCKS)), Head(1))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce_gradient)
    return step_of(model, 1)


def reduce_gradient(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    dist.all_reduce(parameter.grad)
    parameter.grad /= RANKS


def train_on_tensors(_: int) -> Step:
    """Each rank has half of every layer, and the same batch."""
    return step_of(nn.Sequential(*(Block(RANKS) for _ in range(BLOCKS)), Head(RANKS)), RANKS)


def step_of(model: nn.Module, parts: int) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(given: torch.Tensor, target: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(model(given), target[:, : OUTPUTS // parts]).backward()
        optimizer.step()

    return step


def train_in_pipeline(rank: int) -> Step:
    """Each rank has half of the layers: first all micro-batches go forward, then all go back."""
    last = rank == RANKS - 1
    layers = [*(Block(1) for _ in range(BLOCKS // RANKS)), *([Head(1)] if last else [])]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(given: torch.Tensor, target: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=False)
        pieces = list(zip(given.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES), strict=True))
        (end_of_pipeline if last else begin_of_pipeline)(model, pieces)
        optimizer.step()

    return step


def begin_of_pipeline(model: nn.Module, pieces: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Send the activations of all micro-batches to the next rank, then receive their gradients."""
    results = []
    for given, _ in pieces:
        results.append(model(given))
        dist.send(results[-1].detach(), 1)
    for result in results:
        gradient = torch.empty_like(result)
        dist.recv(gradient, 1)
        result.backward(gradient)


def end_of_pipeline(model: nn.Module, pieces: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Receive the activations of all micro-batches from the rank before, then send their gradients."""
    received, losses = [], []
    for given, target in pieces:
        received.append(torch.empty_like(given).requires_grad_())
        dist.recv(received[-1].detach(), 0)
        losses.append(nn.functional.mse_loss(model(received[-1]), target))
    for result, loss in zip(received, losses, strict=True):
        loss.backward()
        assert result.grad is not None
        dist.send(result.grad, 0)


PROGRAMS = {"data": train_on_data, "tensor": train_on_tensors, "pipeline": train_in_pipeline}


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(arguments.folder / f"{arguments.kind}.meeting").as_uri(),
        rank=arguments.rank,
        world_size=RANKS,
        timeout=PATIENCE,
    )
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as profiler:
        step = PROGRAMS[arguments.kind](arguments.rank)
        torch.manual_seed(arguments.rank if arguments.kind == "data" else 0)
        for number in range(ITERATIONS):
            with record_function(f"ProfilerStep#{number}"):
                step(torch.randn(BATCH, WIDTH), torch.randn(BATCH, OUTPUTS))
    profiler.export_chrome_trace(os.fspath(arguments.folder / f"{arguments.kind}-{arguments.rank}.json"))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo that contains a tensor while Python ends aborts the process (PyTorch 2.13)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.parallel_ranks", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("rank", type=int, choices=range(RANKS))
    parser.add_argument("folder", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
