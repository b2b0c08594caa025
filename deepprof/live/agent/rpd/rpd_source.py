"""Follows an RPD file: the rows that librpd_tracer writes go to a rank a few seconds later."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import TraceError
from deepprof.collectors.trace import Trace
from deepprof.live.agent.identity import CollectorRun
from deepprof.live.agent.job_names import clean_name
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.agent.ranks import ProcessRefusedError
from deepprof.live.agent.rpd.growing_database import DatabaseBusyError, FileStamp, GrowingDatabase, read_stamp
from deepprof.live.agent.rpd.held_rows import TIMED, HeldRows
from deepprof.live.agent.traces import EARLIEST, RankReceiver, send_trace
from deepprof.live.client.retrying import CLOCK, Clock
from deepprof.live.wire.sent_tables import NOT_SENT

log = logging.getLogger(__name__)

LOOK_S = 0.5
LAST_LOOKS = 20
RETRY_S = 10.0  # after an error that only time or people can fix
WRITERS = 64  # processes that are watched for their end
IDLE_S = 30.0  # a table that has not grown for so long is not waited for: the tracer writes what it has within seconds
DECIDE_S = 10.0  # to decide on the stream with too few kernels
TEXT_S = 10.0  # for names to come after the rows that have them
AHEAD_NS = 1_000_000_000  # of this machine's clock: later times cannot be its own


def find_offset(newest_ns: int, changed_ns: int, unix_ns: int, since_boot_ns: int) -> int:
    """Return the offset from times since the start of the machine to Unix time.

    `newest_ns` is the last time in the file, `changed_ns` when the file was written. If both do not fit this machine's
    clocks, the file is from another machine or from before a restart: its last record then counts as written last.
    """
    offset_ns = unix_ns - since_boot_ns
    fits = newest_ns <= since_boot_ns + AHEAD_NS and newest_ns + offset_ns <= changed_ns + AHEAD_NS
    recent = changed_ns - (newest_ns + offset_ns) < 3600 * 10**9  # the tracer flushes within seconds
    return offset_ns if fits and recent else changed_ns - newest_ns


@dataclass(slots=True)
class RpdSource:
    """Follows the file `path` as rank `number` of `job`, until instructed to stop or its writers are gone.

    A file that replaces it continues the rank after a gap. `open_rank` raises `ProcessRefusedError`.
    """

    path: Path
    job: str
    open_rank: Callable[[CollectorRun], RankReceiver]
    notices: NoticeLog
    number: int | None = None
    clock: Clock = CLOCK
    unix_ns: Callable[[], int] = time.time_ns
    since_boot_ns: Callable[[], int] = time.monotonic_ns
    is_alive: Callable[[int], bool] = lambda pid: os.path.exists(f"/proc/{pid}")
    rank: RankReceiver | None = None
    growth: GrowingDatabase | None = None
    held: HeldRows = field(init=False)
    stamp: FileStamp | None = None
    offset_ns: int | None = None
    watermark_ns: int = EARLIEST
    began_s: float = 0.0
    grown_s: dict[str, float] = field(default_factory=dict)
    writers: set[int] = field(default_factory=set)
    texts_since_s: float | None = None  # when names began to be missing
    stopping: bool = False
    dropped: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.held = HeldRows(self.path)

    async def run(self) -> None:
        """Follow the file; returns when it is over and everything was given to the rank, also when cancelled."""
        following = asyncio.create_task(self.follow())
        try:
            await asyncio.shield(following)
        except asyncio.CancelledError:
            self.stop()
            await following
            raise

    async def follow(self) -> None:
        """Follow the file until it is over, and end the rank."""
        try:
            while not self.is_over():
                await self.pause(await self.attempt())
            await self.finish()
        finally:
            self.close()
            if self.rank is not None:
                self.rank.end({**self.dropped, "late": self.counts["late"]})

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or less when told to stop."""
        until_s = self.clock.now_s() + seconds
        while not self.stopping and self.clock.now_s() < until_s:
            await self.clock.sleep(min(LOOK_S, seconds))

    def stop(self) -> None:
        """Have the rest read, and then end."""
        self.stopping = True

    def state(self) -> dict[str, Any]:
        """Return the state, for the agent's answer."""
        return {
            "source": "rpd",
            "path": str(self.path),
            "job": self.job,
            "waiting": self.held.waiting,
            "counts": dict(self.counts),
            "notices": self.notices.latest,
        }

    async def attempt(self) -> float:
        """Read once and return how many seconds to wait."""
        try:
            return LOOK_S if await self.look() == 0 else 0.0
        except DatabaseBusyError:
            self.counts["busy"] += 1
            return LOOK_S
        except TraceError as error:
            self.notices.say(str(error))
        except ProcessRefusedError as error:
            self.notices.say(f"{self.path} is not followed: {error}")
        except Exception as error:  # a bug that this file triggers
            log.exception("source-failed", extra={"path": str(self.path)})
            self.notices.say(f"{self.path} has met a bug, and is read again ({type(error).__name__}: {error})")
        self.close()
        self.restart()
        return RETRY_S

    async def look(self) -> int:
        """Read new rows and give out those that are complete; return how many rows were new."""
        stamp = read_stamp(self.path)
        if stamp is None:
            self.notices.say(f"{self.path}: is not there yet; it is followed once it is")
            return 0
        if self.stamp is not None and not stamp.follows(self.stamp):
            await self.replace()
        self.stamp = stamp
        if self.growth is None:
            self.growth = await asyncio.to_thread(GrowingDatabase, self.path)
            if not self.growth.has_records:
                self.close()
                return 0
        new = await self.read(self.growth)
        horizon_ns = self.held.horizon_ns(self.growing())
        if horizon_ns is not None and self.is_decided():
            await self.give(horizon_ns if self.growing() else horizon_ns + 1)
        return new

    async def read(self, growth: GrowingDatabase) -> int:
        """Read new rows, note which tables grow and which processes write; return how many rows there were."""
        rows = await asyncio.to_thread(growth.read)
        now_s = self.clock.now_s()
        if rows and not self.began_s:
            self.began_s = now_s
        self.grown_s |= dict.fromkeys(set(rows) & set(TIMED), now_s)
        self.held.add(rows)
        pids = [pid for frame in rows.values() if "pid" in frame.columns for pid in frame["pid"].unique() if pid]
        # In a container a process has another pid than here: a pid that does not exist now shows nothing later.
        self.writers |= {pid for pid in pids[:WRITERS] if self.is_alive(pid)} if len(self.writers) < WRITERS else set()
        return sum(frame.height for frame in rows.values())

    def growing(self) -> set[str]:
        """Return the tables that have grown lately."""
        now_s = self.clock.now_s()
        return {table for table, grown_s in self.grown_s.items() if now_s - grown_s < IDLE_S}

    def is_decided(self) -> bool:
        """Whether it is available which column is the stream, or that is no longer waited for."""
        return self.held.is_enough or self.clock.now_s() - self.began_s > DECIDE_S

    async def give(self, until_ns: int) -> None:
        """Give out the records that begin before `until_ns`, on the file's clock."""
        if self.growth is None:
            return
        waited_s = 0.0 if self.texts_since_s is None else self.clock.now_s() - self.texts_since_s
        patient = waited_s < TEXT_S and not self.stopping
        trace = await asyncio.to_thread(self.held.take, until_ns, self.growth.texts, patient=patient)
        if trace is None:
            if self.held.missing and self.texts_since_s is None:
                self.texts_since_s = self.clock.now_s()
            return
        self.texts_since_s = None
        self.dropped.update(trace.accounting.dropped)
        if not trace.accounting.kept:
            return
        if self.rank is None:
            self.rank = self.open_rank(self.identify(trace))
        offset_ns = 0 if trace.clock == "unix" else self.offset()
        given = await send_trace(
            self.rank, trace, watermark_ns=self.watermark_ns, until_ns=until_ns + offset_ns, offset_ns=offset_ns
        )
        self.watermark_ns = given.until_ns
        self.counts.update(records=given.records, late=given.late)
        self.dropped += Counter({NOT_SENT: given.unsent})

    def offset(self) -> int:
        """Return the offset from the file's times to Unix time, the same for as long as it is the same file."""
        if self.offset_ns is None:
            newest_ns = max(self.held.newest_ns.values(), default=0)
            changed_ns = self.stamp.changed_ns if self.stamp else self.unix_ns()
            self.offset_ns = find_offset(newest_ns, changed_ns, self.unix_ns(), self.since_boot_ns())
        return self.offset_ns

    def identify(self, trace: Trace) -> CollectorRun:
        """Return the identity for the daemon; its name is new each time, since the file is read from its beginning."""
        return CollectorRun(
            job=clean_name(self.job) or "rpd",
            collector=f"rpd-{secrets.token_hex(6)}",
            rank=self.number,
            format="rpd",
            source=str(self.path),
            notes=trace.notes,
        )

    async def replace(self) -> None:
        """Give out the rest of the former file, and begin with the new one."""
        self.counts["replaced"] += 1
        self.notices.say(f"{self.path}: another file has taken its place and is followed now")
        await self.give_all()
        if self.rank is not None:
            self.rank.gap("replaced")
        self.close()
        self.restart()

    def restart(self) -> None:
        """Forget all that belongs to one file."""
        self.held, self.offset_ns, self.began_s = HeldRows(self.path), None, 0.0
        self.grown_s, self.writers, self.texts_since_s = {}, set(), None

    async def give_all(self) -> None:
        """Give out everything that is kept."""
        self.texts_since_s = EARLIEST
        if self.held.newest_ns:
            await self.give(max(self.held.newest_ns.values()) + 1)

    async def finish(self) -> None:
        """Read the rest, and give out everything; rows that a writer keeps locked for long are lost."""
        for _ in range(LAST_LOOKS):
            try:
                while await self.look():
                    pass
                return await self.give_all()
            except DatabaseBusyError:
                await self.clock.sleep(LOOK_S)
            except (TraceError, ProcessRefusedError) as error:
                return self.notices.say(f"{self.path}: its end could not be read: {error}")
        return self.notices.say(f"{self.path}: its end could not be read: its writer does not let go of it")

    def is_over(self) -> bool:
        """Whether nothing follows: it was told to stop, or no table has grown for long and all writers are gone."""
        idle = bool(self.grown_s) and not self.growing()
        return self.stopping or (idle and bool(self.writers) and not any(map(self.is_alive, self.writers)))

    def close(self) -> None:
        """Close the file."""
        if self.growth is not None:
            self.growth.close()
            self.growth = None
