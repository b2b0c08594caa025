"""Runs of the online miner over a whole stream, cut into chunks in any way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import IterationBatch
from tests.mining.jobs import Job

Stream = npt.NDArray[np.integer[Any]]


def run(
    stream: Stream, window: int = 1 << 16, chunk: int = 4096, gaps: Iterable[int] = ()
) -> tuple[OnlineMiner, IterationBatch]:
    """Feed everything in equal chunks, with gaps before the symbols at these positions, and finish."""
    miner, given = OnlineMiner(window), []
    edges = sorted({*range(0, len(stream), chunk), *gaps, len(stream)})
    for first, end in pairwise(edges):
        if first in set(gaps):
            given.append(miner.gap())
        given.append(miner.feed(stream[first:end]))
    if len(stream) in set(gaps):
        given.append(miner.gap())
    return miner, IterationBatch.join([*given, miner.finish()])


def rows(batch: IterationBatch) -> list[tuple[Any, ...]]:
    """Return the iterations as tuples: first, end, matched, edits, complete, loop."""
    columns = (batch.first, batch.end, batch.matched, batch.edits, batch.complete, batch.loop)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def starts_of(batch: IterationBatch, loop: int | None = None) -> npt.NDArray[np.int64]:
    """Return where the complete iterations begin, of one loop or of all."""
    chosen = batch.complete if loop is None else batch.complete & (batch.loop == loop)
    return batch.first[chosen]


def kinds(miner: OnlineMiner, *wanted: str) -> list[tuple[int, str, int, int]]:
    """Return position, kind, loop and period of the events of these kinds."""
    return [(e.position, e.kind, e.loop, e.period) for e in miner.events if e.kind in wanted]


def story(miner: OnlineMiner) -> list[tuple[str, int]]:
    """Return which loops were found and lost, in order."""
    return [(kind, loop) for _, kind, loop, _ in kinds(miner, "lock", "lost")]


def one_after_the_other(*jobs: Job, apart: Sequence[int] = ()) -> tuple[npt.NDArray[np.int64], list[list[int]]]:
    """Return the streams of several jobs in a row, symbols shifted by `apart`, and where their iterations begin."""
    parts, starts, at = [], [], 0
    for job, shift in zip(jobs, [*apart, *[0] * len(jobs)], strict=False):
        parts.append(job.symbols() + shift)
        starts.append([at + start for start in job.starts])
        at += len(parts[-1])
    return np.concatenate(parts), starts
