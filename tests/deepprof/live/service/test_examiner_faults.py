"""Examinations that fail, jobs that go while they are examined, captures that do not fit: the daemon goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

import deepprof
from deepprof.live.service.examination import ExaminationResult, FindingSummary
from deepprof.live.service.examiner import Examiner
from deepprof.live.service.folder import StoreError
from deepprof.live.service.fsck import check_store
from deepprof.live.service.refusal import RefusedError
from tests.deepprof.live.service.inside import DEADLINE_S, Inside, ManualClock, inside, until
from tests.deepprof.live.service.traces import gpu_only_trace

Body = Callable[[Inside], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=30, kernels=100)


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the examiner look again at once."""
    monkeypatch.setattr("deepprof.live.service.examiner.examiner.LOOK_S", 0.01)
    monkeypatch.setattr("deepprof.live.service.examiner.examiner.PAUSE_S", 0.01)


def run(folder: Path, body: Body, **settings: str) -> None:
    async def main() -> None:
        async with inside(folder, {name.replace("__", "."): value for name, value in settings.items()}) as daemon:
            await body(daemon)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def looking(examiner: Examiner) -> Any:
    """Give the examiner's task while it runs."""
    task = asyncio.create_task(examiner.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as content:
        content.seek(offset)
        byte = content.read(1)
        content.seek(offset)
        content.write(bytes([byte[0] ^ 0x40]))


def damage_frame(daemon: Inside, session: int, number: int) -> None:
    """Flip a bit in the payload of a session's frame, on the disk."""
    place = daemon.engine.journal.window(session)[number]
    flip(daemon.engine.journal.folder / f"{place.segment:012d}.seg", place.offset + place.length // 2)


@pytest.mark.usefixtures("brisk")
def test_a_damaged_record_does_not_end_the_examiner(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        async with looking(daemon.examiner) as task:
            bad = await daemon.send(trace, "damaged", end=False)
            damage_frame(daemon, bad.number, 1)
            daemon.clock.pass_by(61 * 10**9)
            await until(lambda: daemon.examiner.known.get("damaged") is not None, "it was looked at")
            good = await daemon.send(trace, "sound")
            await until(lambda: good.settled, "another one is settled")
            assert not task.done()

    run(tmp_path, body)


@pytest.mark.usefixtures("brisk")
def test_a_rank_whose_records_are_damaged_keeps_its_live_iterations(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        bad = await daemon.send(trace, "damaged")
        before, _ = await daemon.engine.order(lambda: daemon.engine.history.iterations("damaged"))
        damage_frame(daemon, bad.number, 1)
        async with looking(daemon.examiner):
            await until(lambda: bad.unsettled, "it cannot be settled")
        daemon.engine.worker.save([bad])
        after, _ = daemon.engine.history.iterations("damaged")
        assert not bad.settled
        assert after.height >= before.height

    run(tmp_path, body)


def test_the_raw_window_has_a_gap_where_a_record_is_damaged(tmp_path: Path, trace: deepprof.Trace) -> None:
    from deepprof.live.wire.assembly import assemble_all

    async def body(daemon: Inside) -> None:
        rank = await daemon.send(trace, "damaged", records=500)
        frames = [daemon.engine.journal.read(place) for place in daemon.engine.journal.window(rank.number)]
        damage_frame(daemon, rank.number, 0)  # has the first names
        damage_frame(daemon, rank.number, 2)
        messages = [message async for message in daemon.examiner.read_window(rank)]
        (found,) = assemble_all(iter(messages))
        lost = frames[0].count + frames[2].count
        assert found.device_events.height == trace.device_events.height - lost
        assert any(f"{lost:,} records in between are lost" in note for note in found.notes), found.notes
        assert found.names.equals(trace.names)

    run(tmp_path, body)


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("how", ["killed", "out of memory", "too slow"])
def test_an_examination_that_dies_is_a_line_in_the_log(
    how: str, tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = asyncio.create_subprocess_exec

    async def start(*command: str, **more: Any) -> asyncio.subprocess.Process:
        if how == "out of memory":
            command = tuple("1000000" if word.isdigit() else word for word in command)
        process = await real(*command, **more)
        if how != "out of memory":
            process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        return process

    async def body(daemon: Inside) -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        rank = await daemon.send(trace, "unlucky")
        async with looking(daemon.examiner) as task:
            await until(lambda: rank.unsettled, "it was tried")
            assert not task.done()
        monkeypatch.setattr(asyncio, "create_subprocess_exec", real)
        daemon.examiner.config = msgspec.structs.replace(daemon.examiner.config, timeout_ns=round(DEADLINE_S * 1e9))
        other = await daemon.send(trace, "lucky")
        async with looking(daemon.examiner):
            await until(lambda: other.settled, "the next one is settled")
        assert not rank.settled
        assert daemon.examiner.failures >= 1
        assert daemon.health.why_not() == ""

    run(tmp_path, body, examine__timeout="1s" if how == "too slow" else f"{DEADLINE_S:.0f}s")
    assert "examination-failed" in caplog.text


def result_of(rule: str) -> ExaminationResult:
    return ExaminationResult("{}", [FindingSummary(rule, "warning", "t", "s", "a", None, 0.9)], [], b"")


def test_a_job_forgotten_while_it_is_examined_stays_forgotten(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "gone", end=False)

        async def ask(*_: object, **__: object) -> ExaminationResult:
            await daemon.engine.forget("gone")
            daemon.examiner.forget("gone")
            return result_of("x")

        monkeypatch.setattr(daemon.examiner, "ask", ask)
        await daemon.examiner.examine("gone")
        assert "gone" not in daemon.examiner.known
        await daemon.engine.order(lambda: None)
        assert daemon.engine.history.list_texts("examined/") == {}

    run(tmp_path, body)


def test_a_capture_of_a_job_forgotten_meanwhile_is_not_kept(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.send(trace, "gone", end=False)
        real = daemon.examiner.run_process

        async def run_process(*args: Any) -> bytes | None:
            output = await real(*args)
            await daemon.engine.forget("gone")
            daemon.examiner.forget("gone")
            return output

        monkeypatch.setattr(daemon.examiner, "run_process", run_process)
        with pytest.raises(RefusedError):
            await daemon.examiner.capture(rank, "asked-for")
        assert daemon.examiner.captures.kept == []
        assert [path for path in daemon.examiner.captures.folder.iterdir() if path.is_dir()] == []

    run(tmp_path, body)


@pytest.mark.usefixtures("brisk")
def test_a_history_that_cannot_be_written_does_not_end_the_worker(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Inside) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(daemon.engine.history, "save_text", refuse)
        monkeypatch.setattr(daemon.engine.history, "settle", refuse)
        async with looking(daemon.examiner) as task:
            await daemon.send(trace, "full")
            await daemon.send(trace, "also", end=False)
            await until(lambda: daemon.examiner.known.get("also") and daemon.examiner.known["also"].unix_ns, "examined")
            assert not task.done()
            assert not daemon.engine.vitals.problem
            monkeypatch.undo()
            monkeypatch.setattr("deepprof.live.service.examiner.examiner.LOOK_S", 0.01)
            rank = await daemon.send(trace, "room")
            await until(lambda: rank.settled, "it goes on when there is room")

    run(tmp_path, body)


@pytest.mark.usefixtures("brisk")
def test_captures_that_cannot_be_listed_do_not_end_the_examiner(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Inside) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(type(daemon.examiner.captures), "_write", refuse)
        rank = await daemon.send(trace, "full", end=False)
        async with looking(daemon.examiner) as task:
            daemon.examiner._wanted.append((rank, "gap"))
            await until(lambda: not daemon.examiner._wanted and daemon.examiner.done, "it was tried")
            with pytest.raises(RefusedError, match="No space left"):
                await daemon.examiner.capture(rank, "asked-for")
            assert not task.done()
        folders = [path for path in daemon.examiner.captures.folder.iterdir() if path.is_dir()]
        assert folders == []
        assert daemon.examiner.captures.kept == []

    run(tmp_path, body)


@pytest.mark.parametrize(("key", "value", "left"), [("count", "2", 2), ("count", "0", 0), ("nbytes", "10KiB", 0)])
def test_captures_stay_within_their_limits(
    key: str, value: str, left: int, tmp_path: Path, trace: deepprof.Trace
) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.send(trace, "captured", end=False)
        for _ in range(3):
            daemon.clock.pass_by(1)
            with contextlib.nullcontext() if left else pytest.raises(RefusedError, match="captures"):
                await daemon.examiner.capture(rank, "asked-for")
        kept = daemon.examiner.captures.kept
        folders = {path.name for path in daemon.examiner.captures.folder.iterdir() if path.is_dir()}
        assert len(kept) == left
        assert folders == {one.name for one in kept}

    run(tmp_path, body, **{f"captures__{key}": value})


def test_a_capture_too_large_leaves_the_others(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        small = await daemon.send(gpu_only_trace(iterations=2, kernels=20), "small", end=False)
        await daemon.examiner.capture(small, "asked-for")
        daemon.examiner.captures.most_nbytes = daemon.examiner.captures.kept[0].nbytes + 100
        large = await daemon.send(gpu_only_trace(iterations=100, kernels=300), "large", end=False)
        with pytest.raises(RefusedError, match=r"captures\.nbytes"):
            await daemon.examiner.capture(large, "asked-for")
        assert [one.job for one in daemon.examiner.captures.kept] == ["small"]

    run(tmp_path, body)


def test_a_rank_without_records_can_be_captured(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "empty", object())
        capture = await daemon.examiner.capture(rank, "asked-for")
        assert (daemon.examiner.captures.folder / capture.name).is_dir()

    run(tmp_path, body)


def test_open_findings_outlive_a_restart(tmp_path: Path, trace: deepprof.Trace) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with inside(tmp_path, clock=clock) as daemon:
            rank = await daemon.send(trace, "team/llm/run-1", end=False)
            daemon.examiner.learn("team/llm/run-1", result_of("slow"), [rank])
            since = daemon.examiner.findings("team/llm/run-1").findings[0].active_since_unix_ns
            await daemon.engine.order(lambda: None)
        clock.pass_by(3600 * 10**9)
        async with inside(tmp_path, clock=clock) as daemon:
            again = daemon.engine.roster.find("team/llm/run-1", 0)
            assert again is not None
            assert dict(again.view.findings) == {"slow": "warning"}
            daemon.examiner.learn("team/llm/run-1", result_of("slow"), [again])
            assert daemon.examiner.findings("team/llm/run-1").findings[0].active_since_unix_ns == since

    asyncio.run(main())


def test_what_is_known_of_jobs_that_went_is_let_go(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.send(trace, "old", end=False)
        daemon.examiner.learn("old", result_of("slow"), [rank])
        for hours in (25, 2):
            daemon.clock.pass_by(hours * 3600 * 10**9)
            await daemon.engine.expire()
        assert daemon.engine.roster.find("old", 0) is None
        await daemon.examiner.look()
        assert daemon.examiner.known == {}

    run(tmp_path, body)


def test_the_examiner_leaves_no_process_behind(tmp_path: Path, trace: deepprof.Trace) -> None:
    pids = list[int]()
    real = asyncio.create_subprocess_exec

    async def start(*command: str, **more: Any) -> asyncio.subprocess.Process:
        process = await real(*command, **more)
        process.send_signal(signal.SIGSTOP)
        pids.append(process.pid)
        return process

    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "stopped")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "create_subprocess_exec", start)
            patch.setattr("deepprof.live.service.examiner.examiner.LOOK_S", 0.01)
            async with looking(daemon.examiner):
                await until(lambda: pids, "the process runs")
        with pytest.raises(ProcessLookupError):
            os.kill(pids[0], 0)

    run(tmp_path, body)


def test_a_store_error_is_no_end_either(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deepprof.live.service.examiner.examiner.LOOK_S", 0.01)
    monkeypatch.setattr("deepprof.live.service.examiner.examiner.PAUSE_S", 0.01)

    async def body(daemon: Inside) -> None:
        calls = 0

        async def look() -> None:
            nonlocal calls
            calls += 1
            raise StoreError("x", "is damaged") if calls % 2 else RuntimeError("a bug")

        monkeypatch.setattr(daemon.examiner, "look", look)
        async with looking(daemon.examiner) as task:
            await until(lambda: calls > 3, "it is tried again")
            assert not task.done()

    run(tmp_path, body)
    assert "examiner-failed" in caplog.text


def test_a_capture_that_was_never_noted_goes_at_the_next_start(tmp_path: Path, trace: deepprof.Trace) -> None:
    folder = tmp_path / "store" / "captures"

    async def before(daemon: Inside) -> None:
        rank = await daemon.send(trace, "a", end=False)
        await daemon.examiner.capture(rank, "asked-for")
        (folder / "123-0").mkdir()
        (folder / "mine").mkdir()

    async def after(daemon: Inside) -> None:
        (kept,) = daemon.examiner.captures.kept
        assert {path.name for path in folder.iterdir() if path.is_dir()} == {kept.name, "mine"}

    run(tmp_path, before)
    run(tmp_path, after)


def test_a_damaged_list_of_captures_removes_none(tmp_path: Path, trace: deepprof.Trace) -> None:
    folder = tmp_path / "store" / "captures"

    async def before(daemon: Inside) -> None:
        rank = await daemon.send(trace, "a", end=False)
        await daemon.examiner.capture(rank, "asked-for")

    async def after(daemon: Inside) -> None:
        assert daemon.examiner.captures.kept == []
        assert len([path for path in folder.iterdir() if path.is_dir()]) == 1

    run(tmp_path, before)
    assert check_store(tmp_path / "store") == []
    (folder / "captures.json").write_text("[{")
    run(tmp_path, after)
