"""The calling contexts that the daemon keeps of jobs, for queries, profiles, the page and the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from deepprof.live.service.folder import StoreError
from deepprof.metrics.contexts.history import ContextsOfRank

if TYPE_CHECKING:
    from deepprof.live.service.daemon_rank import DaemonRank
    from deepprof.live.service.engine import Engine
    from deepprof.live.service.history.values import ContextAnswer, WaitingWindow

READ_S = 30.0  # for which a thread waits for the event loop


async def read_contexts(
    engine: Engine, job: str, rank: int | None, within: tuple[int, int], ranks: Iterable[DaemonRank]
) -> ContextAnswer:
    """Return what contexts of a job (or of one rank) did in the windows that overlap a time; `ranks` are those here.

    Raises `ValueError` for too many windows, `StoreError` and `OSError` where the history cannot be read.
    """
    chosen = [each for each in ranks if rank in (None, each.hello.rank)]

    def save() -> list[WaitingWindow]:
        engine.worker.save(chosen)
        return [window for each in chosen for window in each.look_at_contexts()]

    waiting = await engine.order(save)
    return await asyncio.to_thread(engine.history.contexts, job, rank, within, waiting)


async def read_rank(engine: Engine, job: str, rank: int, within: tuple[int, int]) -> ContextsOfRank:
    """Return what the contexts of one rank did in the windows that begin in a time, [start, end) in ns."""
    here = engine.roster.jobs.get(job, {}).values()
    found = await read_contexts(engine, job, rank, within, here)
    sums = found.sums.filter(found.sums["time_ns"].is_between(*within, closed="left"))
    return ContextsOfRank(job, rank, found.nodes, sums)


def read_in_thread(
    engine: Engine, loop: asyncio.AbstractEventLoop
) -> Callable[[str, int, int, int], tuple[ContextsOfRank, ...]]:
    """Return a function for other threads than the event loop's, which reads as `read_rank` does.

    It returns nothing where there is nothing, and raises `StoreError` where it cannot be read, or takes too long.
    """

    def read(job: str, rank: int, start_ns: int, end_ns: int) -> tuple[ContextsOfRank, ...]:
        reading = asyncio.run_coroutine_threadsafe(read_rank(engine, job, rank, (start_ns, end_ns)), loop)
        try:
            found = reading.result(READ_S)
        except TimeoutError as error:
            raise StoreError(engine.history.path, f"was not read within {READ_S:g} s", "ask again later") from error
        except OSError as error:
            raise StoreError(engine.history.path, f"cannot be read: {error}") from error
        finally:
            reading.cancel()
        return (found,) if found.sums.height else ()

    return read
