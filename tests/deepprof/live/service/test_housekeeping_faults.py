"""Clocks that jump, disks that fill, stores that vanish, jobs that are too many: seen from inside the daemon."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import deepprof
from deepprof.live.service import housekeeping
from deepprof.live.service.folder import StoreError
from deepprof.live.service.housekeeping import keep_house, tidy
from deepprof.live.service.refusal import RefusedError
from deepprof.live.service.views import HISTORY
from tests.deepprof.live.service.inside import HOUR_NS, Inside, inside, until
from tests.deepprof.live.service.traces import gpu_only_trace
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

Body = Callable[[Inside], Coroutine[Any, Any, None]]
JUMPS_NS = [-30 * HOUR_NS, -HOUR_NS, HOUR_NS, 30 * HOUR_NS]


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=30, kernels=100)


def run(folder: Path, body: Body, **settings: str) -> None:
    async def main() -> None:
        async with inside(folder, {name.replace("__", "."): value for name, value in settings.items()}) as daemon:
            await body(daemon)

    asyncio.run(main())


def refuse(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("jump", slow_unless(lambda jump: abs(jump) > HOUR_NS, JUMPS_NS))
def test_a_jump_of_the_clock_loses_nobody(jump: int, tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.send(trace, "before", end=False)
        daemon.clock.unix += jump
        await tidy(daemon.engine)
        assert daemon.engine.roster.find("before", 0) is rank  # its client may be on its way back
        assert daemon.health.why_not() == ""
        other = await daemon.send(trace, "behind")
        await daemon.examiner.look()
        assert other.settled
        assert rank.accounts.view().accepted == other.accounts.view().accepted
        await daemon.engine.order(lambda: daemon.engine.worker.save(daemon.engine.roster))
        await tidy(daemon.engine)
        for job in ("before", "behind"):
            rows, _ = daemon.engine.history.iterations(job)
            assert rows.height > 0

    run(tmp_path, body)


def test_a_rank_that_is_silent_for_long_is_let_go(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "old", end=False)
        busy = await daemon.attach(trace, "busy", object())
        daemon.clock.pass_by(25 * HOUR_NS)
        await tidy(daemon.engine)
        daemon.clock.pass_by(HOUR_NS)
        await tidy(daemon.engine)
        assert [rank.key for rank in daemon.engine.roster] == [busy.key]
        rows, _ = daemon.engine.history.iterations("old")
        assert rows.height > 0

    run(tmp_path, body)


def test_a_full_disk_keeps_no_chore_from_being_done(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "a")
        done = list[str]()
        monkeypatch.setattr(daemon.engine.history, "seal", refuse)
        monkeypatch.setattr(daemon.engine.history, "sync", refuse)
        monkeypatch.setattr(daemon.engine.history, "retain", lambda *_: done.append("retain"))
        monkeypatch.setattr(housekeeping, "try_disk", lambda _: done.append("disk"))
        daemon.engine.writer.problem = "the journal cannot be written"
        await tidy(daemon.engine)
        assert done == ["retain", "disk"]
        daemon.engine.writer.problem = ""

    run(tmp_path, body)
    assert caplog.text.count("housekeeping-failed") == 2


def test_a_history_without_room_is_written_later(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost meanwhile, and the journal keeps what the history lacks."""

    async def body(daemon: Inside) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(daemon.engine.history, "checkpoint", refuse)
            rank = await daemon.send(trace, "a", end=False)
            await daemon.engine.order(lambda: daemon.engine.worker.save([rank]))
            assert "the history cannot be written" in daemon.health.why_not()
            await tidy(daemon.engine)
            assert "the history cannot be written" in daemon.health.why_not()
            assert rank.needs is not None
        daemon.clock.pass_by(60 * 10**9)
        await until(lambda: not rank.unsaved, "it was saved")
        assert daemon.health.why_not() == ""
        rows, _ = daemon.engine.history.iterations("a")
        assert rows.height > 0
        assert rows.select(HISTORY.names()).equals(rows.select(HISTORY.names()).unique(maintain_order=True))

    run(tmp_path, body)


def test_a_problem_goes_with_the_job_that_had_it(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Inside) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(daemon.engine.history, "checkpoint", refuse)
            rank = await daemon.send(trace, "a", end=False)
            await daemon.engine.order(lambda: daemon.engine.worker.save([rank]))
            await daemon.engine.forget("a")
        await tidy(daemon.engine)
        assert daemon.health.why_not() == ""

    run(tmp_path, body)


@pytest.mark.parametrize("what", ["store", "history.db", "journal"])
def test_a_store_that_is_removed_ends_the_daemon(
    what: str, tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.01)

    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "a", end=False)
        keeping = asyncio.create_task(keep_house(daemon.engine))
        await asyncio.sleep(0.05)
        assert not keeping.done()
        target = tmp_path / "store" if what == "store" else tmp_path / "store" / what
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        with pytest.raises(StoreError, match="was removed or replaced"):
            await asyncio.wait_for(keeping, PATIENCE_S)

    run(tmp_path, body)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_disk_that_does_not_answer_is_no_store_that_was_removed(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise OSError(number, os.strerror(number))

    async def body(daemon: Inside) -> None:
        store = housekeeping.identify(daemon.engine)
        monkeypatch.setattr(housekeeping, "identify", fail)
        assert not housekeeping.has_changed(daemon.engine, store)
        monkeypatch.undo()
        assert not housekeeping.has_changed(daemon.engine, store)
        assert housekeeping.has_changed(daemon.engine, None)

    run(tmp_path, body)
    said = [record.__dict__["problem"] for record in caplog.records if record.getMessage() == "housekeeping-failed"]
    assert said == [str(OSError(number, os.strerror(number)))]


def test_a_job_that_has_ended_makes_room_for_another(tmp_path: Path) -> None:
    short = gpu_only_trace(iterations=6, kernels=30)

    async def body(daemon: Inside) -> None:
        for number in range(3):
            daemon.clock.pass_by(10**9)
            await daemon.send(short, f"job-{number}", end=number != 0)
        daemon.clock.pass_by(10**9)
        await daemon.send(short, "job-3", end=False)
        assert set(daemon.engine.roster.jobs) == {"job-0", "job-2", "job-3"}
        rows, _ = daemon.engine.history.iterations("job-1")
        assert rows.height > 0
        await daemon.send(short, "job-4", end=False)
        with pytest.raises(RefusedError, match=r"limits\.jobs allows 3"):
            await daemon.send(short, "job-5")

    run(tmp_path, body, limits__jobs="3")


def test_floods_of_hellos_stop_at_the_limits_and_shut_nobody_out(tmp_path: Path, trace: deepprof.Trace) -> None:
    from deepprof.v1.records_pb2 import CLOCK_UNIX, Hello

    async def body(daemon: Inside) -> None:
        for number in range(400):
            for hello in (Hello(job=f"job-{number}"), Hello(job="job-0", rank=number)):
                hello.collector, hello.clock = "flood", CLOCK_UNIX
                connection = object()
                rank = await daemon.engine.attach(hello, connection)
                daemon.engine.detach(rank, connection)
                assert len(daemon.engine.roster.jobs) <= 20
                assert len(daemon.engine.roster.jobs.get("job-0", {})) <= 30
        assert daemon.health.why_not() == ""
        await daemon.send(trace, "train")
        assert daemon.engine.roster.find("train", 0) is not None
        assert len(daemon.engine.history.restore()) <= 20 * 30

    run(tmp_path, body, limits__jobs="20", limits__ranks="30")


def test_a_storm_of_reconnections_leaves_nothing_behind(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        async def come(_: int) -> None:
            connection = object()
            try:
                rank = await daemon.attach(trace, "storm", connection)
            except RefusedError:
                return
            await asyncio.sleep(0)
            daemon.engine.detach(rank, connection)

        for _ in range(20):
            await asyncio.gather(*(come(number) for number in range(50)))
        (rank,) = daemon.engine.roster
        assert rank.connection is None
        assert len(daemon.engine.history.restore()) == 1
        await daemon.send(trace, "storm")
        assert rank.accounts.view().accepted == trace.accounting.kept

    run(tmp_path, body)


def test_a_drain_saves_everything_while_streams_are_busy(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        sending = [asyncio.create_task(daemon.send(trace, f"job-{n}", records=100, end=False)) for n in range(4)]
        examining = asyncio.create_task(daemon.examiner.run())
        await until(lambda: any(rank.accounts.view().accepted for rank in daemon.engine.roster), "some is mined")
        await daemon.engine.drain()
        await asyncio.gather(*sending, return_exceptions=True)
        await until(lambda: not any(rank.submitted or rank.queue for rank in daemon.engine.roster), "all is mined")
        examining.cancel()
        assert "draining" in daemon.health.why_not()
        with pytest.raises(RefusedError):
            daemon.engine.stream(object())

    run(tmp_path, body)
    run(tmp_path, nothing_was_mined_again)


async def nothing_was_mined_again(daemon: Inside) -> None:
    assert daemon.found.messages == 0


def test_free_memory_is_given_back_while_nothing_waits(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims = list[int]()
    monkeypatch.setattr(housekeeping, "TRIM", trims.append)

    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "a", end=False)
        await housekeeping.tidy(daemon.engine)
        assert trims == [0]
        rank = await daemon.attach(trace, "b", "somebody")
        async with daemon.engine.room(rank, 1000):
            await housekeeping.tidy(daemon.engine)
        assert trims == [0]

    run(tmp_path, body)
