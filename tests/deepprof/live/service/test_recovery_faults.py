"""Stores that were damaged before a start: the daemon starts, states what is lost, and goes on with what is left."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import deepprof
from deepprof.live.service.fsck import check_store
from deepprof.live.wire.cutting import cut
from tests.chance import draw_seed
from tests.deepprof.live.service.inside import Inside, check_accounts, inside, until
from tests.deepprof.live.service.traces import gpu_only_trace
from tests.widening import slow_unless

Body = Callable[[Inside], Coroutine[Any, Any, None]]
SMALL = {"journal.segment_nbytes": "1MiB", "limits.message_nbytes": "512KiB"}


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=40, kernels=200)


@pytest.fixture(scope="module")
def batches(trace: deepprof.Trace) -> list[Any]:
    return list(cut(trace, records=500))


def run(folder: Path, body: Body, settings: dict[str, str] | None = None) -> None:
    async def main() -> None:
        async with inside(folder, settings) as daemon:
            await body(daemon)

    asyncio.run(main())


def crash(folder: Path, body: Body, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str] | None = None) -> None:
    """Run a daemon that saves nothing once `body` has begun, as if it were killed after it."""

    async def main() -> None:
        with monkeypatch.context() as patch:
            async with inside(folder, settings, checked=False) as daemon:
                patch.setattr(daemon.engine.worker, "save", lambda ranks: list(ranks) and None)
                await body(daemon)

    asyncio.run(main())


async def send_part(daemon: Inside, trace: deepprof.Trace, batches: list[Any], job: str = "a") -> Any:
    """Send some batches, and return the rank when they are mined."""
    connection = object()
    rank = await daemon.attach(trace, job, connection)
    for batch in batches:
        await daemon.submit(rank, batch)
    await until(lambda: not rank.submitted and not rank.queue, "they are mined")
    daemon.engine.detach(rank, connection)
    return rank


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "journal").glob("*.seg"))


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 0x10
    file.write_bytes(content)


def frame_offsets(file: Path) -> list[int]:
    """Return where the frames of a segment begin, found by their magic, which is nowhere else here."""
    from deepprof.live.service.journal.segments import MAGIC

    content, found, at = file.read_bytes(), [], 0
    while (at := content.find(MAGIC, at)) >= 0:
        found.append(at)
        at += 1
    return found


@pytest.mark.parametrize("which", [0, 3])
def test_a_frame_damaged_before_a_start_is_a_gap(
    which: int, tmp_path: Path, trace: deepprof.Trace, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first frame the names are gone that all others use."""

    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches[:8])

    crash(tmp_path, before, monkeypatch)
    (file,) = segments(tmp_path)
    offsets = frame_offsets(file)
    assert len(offsets) == 8
    flip(file, offsets[which] + 200)
    problems = check_store(tmp_path / "store")
    assert any("journal" in str(problem) for problem in problems)

    async def after(daemon: Inside) -> None:
        assert daemon.engine.journal.damaged == 1
        rank = daemon.engine.roster.find("a", 0)
        assert rank is not None
        lost = batches[which + 1].first - batches[which].first
        assert rank.durable == batches[8].first
        account = rank.accounts.view()
        assert (account.gaps, account.lost) == (1, lost)
        assert account.accepted == batches[8].first - lost
        await daemon.send(trace, "a", records=500)  # the client goes on where it was
        assert rank.accounts.view().accepted == trace.accounting.kept - lost
        assert not rank.failed
        await daemon.engine.order(lambda: daemon.engine.worker.save([rank]))
        rows, _ = daemon.engine.history.iterations("a")
        assert rows.height > 20
        await daemon.examiner.examine("a")
        assert daemon.examiner.failures == 0

    run(tmp_path, after)


def test_random_bits_of_the_journal_flip(
    tmp_path: Path, trace: deepprof.Trace, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(draw_seed("flipped bits"))

    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches, "a")
        await send_part(daemon, trace, batches[:5], "b")

    crash(tmp_path, before, monkeypatch)
    for _ in range(chance.randrange(1, 6)):
        file = chance.choice(segments(tmp_path))
        flip(file, chance.randrange(file.stat().st_size))
    check_store(tmp_path / "store")

    async def after(daemon: Inside) -> None:
        for job in ("a", "b"):
            rank = daemon.engine.roster.find(job, 0)
            assert rank is not None
            account = rank.accounts.view()
            assert account.accepted + account.lost == rank.durable
            assert not rank.failed
            _ = [message async for message in daemon.examiner.read_window(rank)]

    run(tmp_path, after)


@pytest.mark.parametrize("keep", [0, 3, 100_000, 0.5, 0.999])
def test_a_journal_cut_short(
    keep: float, tmp_path: Path, trace: deepprof.Trace, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches)

    crash(tmp_path, before, monkeypatch)
    file = segments(tmp_path)[-1]
    with file.open("r+b") as content:
        content.truncate(int(keep if keep > 1 else file.stat().st_size * keep))

    async def after(daemon: Inside) -> None:
        rank = daemon.engine.roster.find("a", 0)
        assert rank is not None
        assert rank.accounts.view().accepted == rank.durable < trace.accounting.kept
        await daemon.send(trace, "a", records=500)
        assert rank.accounts.view().accepted == trace.accounting.kept

    run(tmp_path, after)
    assert [problem for problem in check_store(tmp_path / "store") if "history" in str(problem)] == []


def test_a_segment_that_is_gone_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = gpu_only_trace(iterations=400, kernels=200)
    parts = list(cut(trace, records=500))

    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, parts)

    crash(tmp_path, before, monkeypatch, SMALL)
    files = segments(tmp_path)
    assert len(files) >= 3
    files[1].unlink()

    async def after(daemon: Inside) -> None:
        rank = daemon.engine.roster.find("a", 0)
        assert rank is not None
        account = rank.accounts.view()
        assert account.gaps == 1
        assert account.accepted + account.lost == rank.durable == trace.accounting.kept

    run(tmp_path, after, SMALL)


def change_state(folder: Path, change: Callable[[bytes], bytes]) -> None:
    with closing(sqlite3.connect(folder / "store" / "history.db")) as db:
        for session, state in db.execute("SELECT * FROM states").fetchall():
            db.execute("UPDATE states SET state = ? WHERE session = ?", (change(state), session))
        db.commit()


@pytest.mark.parametrize("kind", slow_unless({"cut", "empty"}.__contains__, ["cut", "garbage", "flipped", "empty"]))
def test_a_state_that_cannot_be_read_loses_nothing_acknowledged(
    kind: str, tmp_path: Path, trace: deepprof.Trace, batches: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches[:6])

    run(tmp_path, before)
    changes: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda state: state[: len(state) // 2],
        "garbage": lambda state: b"\x00garbage" + state[8:],
        "flipped": lambda state: state[:20] + bytes(255 - byte for byte in state[20:]),
        "empty": lambda _: b"\x80",
    }
    change_state(tmp_path, changes[kind])

    async def after(daemon: Inside) -> None:
        rank = daemon.engine.roster.find("a", 0)
        assert rank is not None
        assert rank.durable == batches[6].first  # what was acknowledged stays so
        await daemon.send(trace, "a", records=500)
        assert not rank.failed
        await daemon.examiner.look()
        assert rank.settled  # the journal has all: the result is the whole one after all
        rows, _ = daemon.engine.history.iterations("a")
        assert rows.height == deepprof.analyze(trace).iterations.height

    run(tmp_path, after)
    assert "state-damaged" in caplog.text
    run(tmp_path, check_again)


async def check_again(daemon: Inside) -> None:
    rank = daemon.engine.roster.find("a", 0)
    assert rank is not None
    assert rank.settled
    check_accounts(daemon.engine)


def test_narrower_limits_do_not_touch_what_was_acknowledged(
    tmp_path: Path, trace: deepprof.Trace, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches)

    crash(tmp_path, before, monkeypatch)

    async def after(daemon: Inside) -> None:
        assert daemon.found.damaged == 0
        rank = daemon.engine.roster.find("a", 0)
        assert rank is not None
        assert rank.accounts.view().accepted == trace.accounting.kept
        await daemon.examiner.examine("a")
        assert daemon.examiner.failures == 0

    run(tmp_path, after, {"limits.batch_records": "10", "limits.names": "1", "limits.ranks": "1", "limits.jobs": "1"})


def test_a_collector_that_was_replaced_does_not_come_back(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def before(daemon: Inside) -> None:
        await daemon.send(trace, "a", end=False, collector="one")
        await daemon.send(trace, "a", end=False, collector="two")

    run(tmp_path, before)

    async def after(daemon: Inside) -> None:
        assert [rank.hello.collector for rank in daemon.engine.roster] == ["two"]
        assert [stored.collector for stored in daemon.engine.history.restore() if not stored.closed] == ["two"]

    run(tmp_path, after)


def test_a_recovery_that_is_stopped_goes_on_at_the_next_start(
    tmp_path: Path, trace: deepprof.Trace, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches)

    crash(tmp_path, before, monkeypatch)
    from deepprof.live.service import recovery

    taken = 0
    real = recovery.take_again

    def take_again(engine: Any, *args: Any) -> None:
        nonlocal taken
        taken += 1
        engine.stopping = taken >= 5
        real(engine, *args)

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "take_again", take_again)
        run(tmp_path, lambda daemon: until(lambda: True, ""))
    assert taken == 5

    async def after(daemon: Inside) -> None:
        assert daemon.found.messages == len(batches) - 5
        rank = daemon.engine.roster.find("a", 0)
        assert rank is not None
        assert rank.accounts.view().accepted == trace.accounting.kept
        assert rank.accounts.view().gaps == 0

    run(tmp_path, after)


def test_recovery_holds_little_at_a_time(
    tmp_path: Path, trace: deepprof.Trace, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(daemon: Inside) -> None:
        for number in range(10):
            await send_part(daemon, trace, batches[:6], f"job-{number}")

    crash(tmp_path, before, monkeypatch)
    monkeypatch.setattr("deepprof.live.service.recovery.PIECE_NBYTES", 200_000)
    held = list[int]()
    from deepprof.live.service.worker import SessionWorker

    real = SessionWorker.put

    def put(worker: SessionWorker, *args: Any) -> None:
        real(worker, *args)
        held.append(sum(rank.queued_nbytes for rank in worker.ranks()))

    monkeypatch.setattr(SessionWorker, "put", put)
    run(tmp_path, lambda daemon: until(lambda: True, ""))
    largest = max(2 * len(batch.SerializeToString()) for batch in batches) + 1000
    assert max(held) <= 200_000 + largest


@pytest.mark.parametrize("seed", range(3))
def test_a_history_with_flipped_bits_is_refused_or_read(
    seed: int, tmp_path: Path, trace: deepprof.Trace, batches: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Either the daemon states what to do, and that helps, or nothing that matters was hit."""
    from deepprof.live.service.folder import StoreError

    caplog.set_level(logging.CRITICAL)
    chance = random.Random(seed)

    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches)

    async def after(daemon: Inside) -> None:
        await daemon.send(trace, "new", records=500)

    run(tmp_path, before)
    file = tmp_path / "store" / "history.db"
    for _ in range(40):
        flip(file, chance.randrange(file.stat().st_size))
    try:
        run(tmp_path, after)
    except StoreError as error:
        if "deepprof fsck" not in str(error):
            raise
        check_store(tmp_path / "store", repair=True)
        run(tmp_path, after)


def test_replay_is_bounded_by_what_was_saved(tmp_path: Path, trace: deepprof.Trace, batches: list[Any]) -> None:
    async def before(daemon: Inside) -> None:
        await send_part(daemon, trace, batches)

    run(tmp_path, before)

    async def after(daemon: Inside) -> None:
        assert daemon.found.messages == 0

    run(tmp_path, after)
