"""All cores for many small tasks; the results come in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

CHUNKS = 12  # per worker: this many that none waits long for another


def each(work: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 0) -> list[Result]:
    """Return `work` done on every task by that many processes, as many as there are cores by default; 1 is this one."""
    workers = workers or os.cpu_count() or 1
    if workers == 1 or len(tasks) <= 1:
        return [work(task) for task in tasks]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(work, tasks, chunksize=max(1, len(tasks) // (CHUNKS * workers))))
