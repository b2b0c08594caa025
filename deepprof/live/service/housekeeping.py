"""What is done now and then: old iterations sealed, what is too old let go, journal segments released."""

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

__all__ = ["keep_house"]

log = logging.getLogger(__name__)

EVERY_S = 10.0
PROBE_NBYTES = 1 << 20
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; other libraries give memory back by themselves
Identity = tuple[tuple[int, int], ...]


async def keep_house(engine: Engine) -> None:
    """Do it until cancelled; a full disk is no reason to stop. Raises `StoreError` where the store is gone."""
    store = identify(engine)
    while True:
        await asyncio.sleep(EVERY_S)
        if has_changed(engine, store):
            where = engine.history.path.parent
            raise StoreError(where, "was removed or replaced while the daemon ran", "start the daemon again")
        await tidy(engine)


def has_changed(engine: Engine, store: Identity | None) -> bool:
    """Return whether the store is no longer the one that it was; one that cannot be looked at may still be."""
    try:
        return identify(engine) != store
    except OSError as error:
        log.warning("housekeeping-failed", extra={"chore": "identify", "problem": str(error)[:200]})
        return False


def identify(engine: Engine) -> Identity | None:
    """Return what tells the store's journal and history from others in their place, None where one is gone.

    Raises `OSError` where the disk does not say.
    """
    try:
        found = [os.stat(path) for path in (engine.journal.folder, engine.history.path)]
    except FileNotFoundError:
        return None
    return tuple((stat.st_dev, stat.st_ino) for stat in found)


async def tidy(engine: Engine) -> None:
    """Do every chore once; one that fails keeps none of the others from being done: they may make room."""
    for chore in (retain, seal, release, expire, try_again, take_measure, give_back):
        try:
            await chore(engine)
        except (OSError, StoreError, RefusedError) as error:
            log.warning("housekeeping-failed", extra={"chore": chore.__name__, "problem": str(error)[:200]})
        except Exception:  # a bug that one job's data met; the others' house is kept all the same
            log.exception("housekeeping-failed", extra={"chore": chore.__name__})


async def retain(engine: Engine) -> None:
    """Let iterations go that are too old, or too many."""
    keep = engine.config.history
    await asyncio.to_thread(engine.history.retain, keep.keep_for_ns, keep.keep_nbytes, engine.clock.unix_ns())


async def seal(engine: Engine) -> None:
    """Move iterations to Parquet."""
    await asyncio.to_thread(engine.history.seal, engine.clock.unix_ns() - engine.config.history.seal_after_ns)


async def release(engine: Engine) -> None:
    """Let the journal's oldest segments go, when everything in them is saved."""
    engine.writer.release(await engine.order(engine.worker.needed))
    if not any(rank.unsaved for rank in engine.roster):  # it was synced just now, and nobody waits to try again
        engine.worker.problem = ""


async def expire(engine: Engine) -> None:
    """Let ranks go that nobody has heard of for long."""
    await engine.expire()


async def try_again(engine: Engine) -> None:
    """Find out whether the disk is back."""
    if engine.writer.problem:
        await asyncio.to_thread(try_disk, engine)


async def take_measure(engine: Engine) -> None:
    """Measure what the history takes, and each rank of it."""
    engine.history_nbytes = await asyncio.to_thread(measure, engine.history.path.parent)
    kept, senders = await asyncio.to_thread(lambda: (engine.history.kept_nbytes(), engine.history.senders()))
    engine.senders.note_kept(kept, senders)


async def give_back(engine: Engine) -> None:
    """Give the system the memory that is free since the last look, where nothing waits; glibc keeps it else."""
    if not engine.queued_nbytes and TRIM is not None:
        await asyncio.to_thread(TRIM, 0)


def try_disk(engine: Engine) -> None:
    """Find out whether the disk takes anything again, where it did not."""
    probe = engine.history.path.with_name(".probe")
    try:
        probe.write_bytes(bytes(PROBE_NBYTES))
        engine.writer.problem = ""
    finally:
        probe.unlink(missing_ok=True)


def measure(store: Path) -> int:
    """Return the bytes of the database and of the sealed files."""
    size = 0
    for file in (*store.glob("history.db*"), *(store / "sealed").glob("*")):
        with contextlib.suppress(FileNotFoundError):  # it may go while we look
            size += file.lstat().st_size
    return size
