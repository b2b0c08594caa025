"""A small GPT whose size never changes: the job of the scenarios `healthy`, `graph-growth` and `copy-bound`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from deepprof.simulation.kernels import (
    AUTOTUNE,
    BLOCK_BACKWARD,
    BLOCK_FORWARD,
    CLIP,
    EMBEDDING,
    EMBEDDING_BACKWARD,
    EXTRA_TERM,
    HEAD,
    HEAD_BACKWARD,
    OPTIMIZER,
    STATISTICS,
)
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import Close, Copy, Fill, HostOperator, Open, Step, Wait

PREFETCH_STREAM = 20
LAYERS = 8
STATISTICS_EVERY = 10
BATCH_NBYTES = 8 * 1024 * 8  # token ids as int64
OVERSIZED_NBYTES = 268_435_456  # a dense one-hot batch that could have been indices
HISTORY_OPS = 10  # operators that every iteration adds to the graph
DATALOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


class _JobProgram(Struct, frozen=True, kw_only=True):
    """What distinguishes one scenario from another.

    `synchronous`: the loss is read back in every iteration, so the host never runs ahead. `batch_nbytes` is copied from
    pageable memory before the iteration; without it the batch is prefetched from pinned memory. `growth_ns` is the host
    time that every iteration adds before the next, `growth_every` the number of iterations after which the loss has one
    more term on the GPU.
    """

    synchronous: bool
    batch_nbytes: int | None = None
    first_growth_ns: int = 0
    growth_ns: int = 0
    growth_every: int = 0


HEALTHY = _JobProgram(synchronous=False)


def plan_healthy(_: SimulationRequest) -> RankPlan:
    """Plan a job whose GPU is always busy."""
    return RankPlan(build=partial(_build_iteration, HEALTHY))


def plan_graph_growth(request: SimulationRequest) -> RankPlan:
    """Plan a job in which every iteration adds operators to a graph that the host walks before the next one."""
    job = _JobProgram(
        synchronous=True,
        batch_nbytes=BATCH_NBYTES,
        first_growth_ns=round(3_600_000 * request.strength),
        growth_ns=round(2_200_000 * request.strength),
        growth_every=5,
    )
    return RankPlan(build=partial(_build_iteration, job))


def plan_copy_bound(request: SimulationRequest) -> RankPlan:
    """Plan a job in which an oversized batch is copied from pageable memory between two iterations."""
    job = _JobProgram(synchronous=False, batch_nbytes=round(OVERSIZED_NBYTES * request.strength))
    return RankPlan(build=partial(_build_iteration, job))


def _build_iteration(job: _JobProgram, index: int) -> Iterator[Step]:
    """Yield the steps of iteration `index`; 0 is the warm-up, negative ones ran before the capture."""
    yield from _load_batch(job, index)
    yield from (Open("Optimizer.zero_grad#AdamW.zero_grad"), HostOperator("aten::zeros", 4_000), Close())
    yield from _compute_gradients(job, index)
    yield from (Open("Optimizer.step#AdamW.step"), *OPTIMIZER, Close())
    if index > 0 and index % STATISTICS_EVERY == 0:
        yield from STATISTICS
    if job.synchronous or index % STATISTICS_EVERY == 0:
        yield from _read_loss()


def _load_batch(job: _JobProgram, index: int) -> Iterator[Step]:
    """Yield everything between two iterations: the growing graph, the data loader and the copy of the batch."""
    yield from _grow_graph(job, index)
    yield from (Open(DATALOADER), HostOperator("aten::stack", 60_000), HostOperator("aten::select", 8_000), Close())
    if job.batch_nbytes is None:
        yield from (Copy("HtoD", BATCH_NBYTES, pinned=True, stream=PREFETCH_STREAM),) * 2
    else:
        yield Copy("HtoD", job.batch_nbytes, pinned=False)
        yield Copy("HtoD", BATCH_NBYTES, pinned=False)


def _grow_graph(job: _JobProgram, index: int) -> Iterator[Step]:
    """Yield the host's walk over a graph to which every iteration added `HISTORY_OPS` operators."""
    if not job.growth_ns:
        return
    yield HostOperator("aten::cat", job.first_growth_ns)
    for _ in range(max(index, 0)):
        for op in ("aten::detach", "aten::add") * (HISTORY_OPS // 2):
            yield HostOperator(op, job.growth_ns // HISTORY_OPS)


def _compute_gradients(job: _JobProgram, index: int) -> Iterator[Step]:
    yield from EMBEDDING
    for layer in range(LAYERS):
        if index == 0 and layer == 0:
            yield Fill(41_943_040)  # the tuner flushes the cache, then times its candidates
            yield from AUTOTUNE
            yield Wait()
        yield from BLOCK_FORWARD
    yield from HEAD
    yield from EXTRA_TERM * (max(index, 0) // job.growth_every if job.growth_every else 0)
    yield from HEAD_BACKWARD
    yield from BLOCK_BACKWARD * LAYERS
    yield Fill(2_097_152)
    yield from (*EMBEDDING_BACKWARD, *CLIP)


def _read_loss() -> tuple[Step, ...]:
    """Return the steps of `loss.item()`."""
    return Copy("DtoH", 4, pinned=False), Wait()
