"""A training iteration with places for a planted problem: what the parts do, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.simulation.kernels import AUTOTUNE, STATISTICS
from deepprof.simulation.models import SimulatedModel
from deepprof.simulation.steps import (
    MAIN_STREAM,
    Allocate,
    Close,
    Copy,
    Fill,
    HostOperator,
    Join,
    Open,
    Pause,
    Reduce,
    Release,
    Step,
    Wait,
)

if TYPE_CHECKING:
    from random import Random


PREFETCH_STREAM = 20
STATISTICS_EVERY = 10
ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
DECODED = 16  # pieces in which the main thread makes a batch


def nothing(_: int) -> Iterable[Step]:
    """Return no step, for any iteration."""
    return ()


def load_prefetched(ns: int) -> tuple[Step, ...]:
    """Return a wait of `ns` for a batch that worker processes made."""
    return Open(WORKERS), Pause(ns), Close()


def load_in_process(ns: int) -> tuple[Step, ...]:
    """Return the steps that make a batch on the main thread in `ns`: files are read and decoded, tensors stacked."""
    piece = (Pause(round(ns * 0.8 / DECODED)), HostOperator("aten::to", round(ns * 0.14 / DECODED)))
    return Open(ALONE), *piece * DECODED, HostOperator("aten::stack", round(ns * 0.06)), Close()


def read_value(*, pinned: bool = True) -> tuple[Step, ...]:
    """Return the steps of `tensor.item()`; older releases read into pageable memory."""
    opened = Open("aten::item", "cpu_op"), Open("aten::_local_scalar_dense", "cpu_op")
    return *opened, Copy("DtoH", 4, pinned=pinned, op=""), Wait(), Close(), Close()


class Training(Struct, frozen=True, kw_only=True):
    """An iteration: load, forward, backward, update, end.

    `load` gives the steps before iteration n, `before_forward` those before its forward pass, `after_block` those after
    every block of it, `after_backward` those between backward pass and optimizer, `end` the last ones. Gradients are
    reduced over the ranks in `buckets`, each after the number of blocks of the backward pass given with it.
    `block_nbytes` are the activations of a block, 0 where the profiler does not record memory.
    """

    model: SimulatedModel
    load: Callable[[int], Iterable[Step]]
    before_forward: Callable[[int], Iterable[Step]] = nothing
    after_block: tuple[Step, ...] = ()
    after_backward: tuple[Step, ...] = ()
    end: Callable[[int], Iterable[Step]] = nothing
    buckets: tuple[tuple[int, Reduce], ...] = ()
    micro_batches: int = 1
    block_nbytes: int = 0
    copy_stream: int = PREFETCH_STREAM
    region: bool = False  # the forward pass is one compiled region
    tunes: bool = True  # the warm-up iteration tries kernels
    statistics: bool = True  # every tenth iteration examines the weights

    def build(self, index: int) -> Iterator[Step]:
        """Yield the steps of iteration `index`."""
        name = self.model.optimizer_name
        for micro_batch in range(self.micro_batches):
            yield from self.load(index)
            yield Copy("HtoD", self.model.batch_nbytes, pinned=True, stream=self.copy_stream)
            if micro_batch == 0:
                yield from _clear_gradients(name)
            yield from self.before_forward(index)
            yield from self.pass_forward(index, tunes=self.tunes and index == 0 and micro_batch == 0)
            yield from self.pass_backward(reduces=micro_batch == self.micro_batches - 1)
        yield from self.after_backward
        yield Open(f"Optimizer.step#{name}.step")
        yield from self.model.optimizer
        yield Close()
        if self.statistics and index > 0 and index % STATISTICS_EVERY == 0:
            yield from STATISTICS
            yield from read_value()
        yield from self.end(index)

    def pass_forward(self, index: int, *, tunes: bool) -> Iterator[Step]:
        """Yield the forward pass; the tuner, which tries kernels, waits for the last of them."""
        if self.region:
            yield Open(f"Torch-Compiled Region: 0/{max(index, 0)}", "cpu_op")
        yield from self.model.stem
        if tunes:
            yield Fill(41_943_040)
            yield from AUTOTUNE
            yield Wait(MAIN_STREAM)
        for block in self.model.blocks:
            yield block[0]
            if self.block_nbytes:
                yield Allocate(self.block_nbytes)
            yield from block[1:]
            yield from self.after_block
        yield from self.model.head
        if self.region:
            yield Close()

    def pass_backward(self, *, reduces: bool) -> Iterator[Step]:
        """Yield the backward pass, with the collectives between its blocks where it reduces."""
        due = dict(self.buckets) if reduces else {}
        yield from self.model.head_backward
        for number, block in enumerate(self.model.blocks_backward, 1):
            yield from block
            if self.block_nbytes:
                yield Release()
            if number in due:
                yield due[number]
        yield from self.model.stem_backward
        if len(self.model.blocks_backward) + 1 in due:
            yield due[len(self.model.blocks_backward) + 1]
        if due:
            yield Join()


def _clear_gradients(optimizer: str) -> tuple[Step, ...]:
    """Return the steps of `optimizer.zero_grad()`."""
    return Open(f"Optimizer.zero_grad#{optimizer}.zero_grad"), HostOperator("aten::zeros", 4_000), Close()


def draw_memory(random: Random) -> int:
    """Return the activations of a block, or 0: most captures do not record memory."""
    return random.randint(8, 96) * 1_048_576 if random.random() < 0.3 else 0
