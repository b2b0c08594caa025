"""The daemon's periodic tasks: old iterations are sealed, expired ones removed, journal segments released."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.live.service.folder import StoreError
from deepprof.live.service.refusal import RefusedError

if TYPE_CHECKING:
    from deepprof.live.service.engine import Engine

log = logging.getLogger(__name__)

EVERY_S = 10.0
PROBE_NBYTES = 1 << 20
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; other C libraries return memory by themselves
Identity = tuple[tuple[int, int], ...]


async def keep_house(engine: Engine) -> None:
    """Run the tasks until cancelled, also while the disk is full. Raises `StoreError` where the store is gone."""
    store = identify(engine)
    while True:
        await asyncio.sleep(EVERY_S)
        if has_changed(engine, store):
            where = engine.history.path.parent
            raise StoreError(where, "was removed or replaced while the daemon ran", "start the daemon again")
        await tidy(engine)


def has_changed(engine: Engine, store: Identity | None) -> bool:
    """Return whether the store was removed or replaced; one that cannot be examined counts as unchanged."""
    try:
        return identify(engine) != store
    except OSError as error:
        log.warning("housekeeping-failed", extra={"chore": "identify", "problem": str(error)[:200]})
        return False


def identify(engine: Engine) -> Identity | None:
    """Return the device and inode numbers of the store's journal and history, None where one is gone.

    Raises `OSError` where they cannot be read.
    """
    try:
        found = [os.stat(path) for path in (engine.journal.folder, engine.history.path)]
    except FileNotFoundError:
        return None
    return tuple((stat.st_dev, stat.st_ino) for stat in found)


async def tidy(engine: Engine) -> None:
    """Do every task once; one that fails does not keep the others from being done, which may free space."""
    for chore in (_retain, seal, _merge_contexts, _release, _expire, _try_again, take_measure, _give_back):
        try:
            await chore(engine)
        except (OSError, StoreError, RefusedError) as error:
            log.warning("housekeeping-failed", extra={"chore": chore.__name__.lstrip("_"), "problem": str(error)[:200]})
        except Exception:  # a bug with one job's data must not stop the tasks for the other jobs
            log.exception("housekeeping-failed", extra={"chore": chore.__name__.lstrip("_")})


async def _retain(engine: Engine) -> None:
    """Remove iterations that are too old, or too many."""
    keep = engine.config.history
    await asyncio.to_thread(engine.history.retain, keep.keep_for_ns, keep.keep_nbytes, engine.clock.unix_ns())


async def seal(engine: Engine) -> None:
    """Move iterations to Parquet."""
    await asyncio.to_thread(engine.history.seal, engine.clock.unix_ns() - engine.config.history.seal_after_ns)


async def _merge_contexts(engine: Engine) -> None:
    until = engine.clock.unix_ns() - engine.config.history.merge_contexts_after_ns
    await asyncio.to_thread(engine.history.merge_contexts, until)


async def _release(engine: Engine) -> None:
    """Have the journal's oldest segments removed, when everything in them is saved."""
    engine.writer.release(await engine.order(engine.worker.needed))
    if not any(rank.unsaved for rank in engine.roster):  # the history was just synced, and no rank waits to be saved
        engine.worker.problem = ""


async def _expire(engine: Engine) -> None:
    """Let go of ranks that have been silent for long."""
    await engine.expire()


async def _try_again(engine: Engine) -> None:
    """Check whether the disk can be written again."""
    if engine.writer.problem:
        await asyncio.to_thread(try_disk, engine)


async def take_measure(engine: Engine) -> None:
    """Measure the bytes of the history, and of every rank in it."""
    engine.history_nbytes = await asyncio.to_thread(_measure, engine.history.path.parent)
    kept, senders = await asyncio.to_thread(lambda: (engine.history.kept_nbytes(), engine.history.senders()))
    engine.senders.note_kept(kept, senders)


async def _give_back(engine: Engine) -> None:
    """Return free memory to the system while no messages wait; glibc would keep it."""
    if not engine.queued_nbytes and TRIM is not None:
        await asyncio.to_thread(TRIM, 0)


def try_disk(engine: Engine) -> None:
    """Write a probe file, and clear the writer's problem if that works."""
    probe = engine.history.path.with_name(".probe")
    try:
        probe.write_bytes(bytes(PROBE_NBYTES))
        engine.writer.problem = ""
    finally:
        probe.unlink(missing_ok=True)


def _measure(store: Path) -> int:
    """Return the bytes of the database and of the sealed files."""
    size = 0
    for file in (*store.glob("history.db*"), *(store / "sealed").glob("*")):
        with contextlib.suppress(FileNotFoundError):  # the file may be removed meanwhile
            size += file.lstat().st_size
    return size
