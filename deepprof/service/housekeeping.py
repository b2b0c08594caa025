"""What is done now and then: old iterations sealed, what is too old let go, journal segments released."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.service.folder import StoreError

if TYPE_CHECKING:
    from deepprof.service.engine import Engine

__all__ = ["keep_house"]

log = logging.getLogger(__name__)

EVERY_S = 10.0
PROBE_NBYTES = 1 << 20


async def keep_house(engine: Engine) -> None:
    """Do it until cancelled; a full disk is no reason to stop."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await tidy(engine)
        except (OSError, StoreError) as error:
            log.warning("housekeeping-failed", extra={"problem": str(error)[:200]})


async def tidy(engine: Engine) -> None:
    """Seal and let go once."""
    engine.writer.release(await engine.order(engine.worker.needed))
    now, keep = engine.clock.unix_ns(), engine.config.history
    await asyncio.to_thread(engine.history.seal, now - keep.seal_after_ns)
    await asyncio.to_thread(engine.history.retain, keep.keep_for_ns, keep.keep_nbytes, now)
    await engine.expire()
    if engine.writer.problem:
        await asyncio.to_thread(try_disk, engine)
    engine.history_nbytes = await asyncio.to_thread(measure, engine.history.path.parent)


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
    files = (*store.glob("history.db*"), *(store / "sealed").glob("*"))
    return sum(file.lstat().st_size for file in files)
