"""What the engine makes of streams that come, go and take over at bad moments, and of disks and sessions that fail."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deepprof.live.service.config.sections import IngestLimits
from deepprof.live.service.folder import StoreError
from deepprof.live.service.history import History
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.refusal import RefusedError
from deepprof.live.service.session import RankSession
from deepprof.live.service.worker import STATE_NS, TURN, TURN_RECORDS, next_turn
from deepprof.live.wire.cutting import cut
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, End
from tests.deepprof.live.service.engines import Steps, hello
from tests.deepprof.live.service.traces import gpu_only_trace
from tests.patience import PATIENCE_S

FULL = OSError(errno.ENOSPC, "No space left on device")
JOB = "job"


@pytest.fixture(scope="module")
def batches() -> list[SendRequest]:
    return [SendRequest(batch=batch) for batch in cut(gpu_only_trace(iterations=20, kernels=50), records=200)]


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    found = Steps(tmp_path / "store")
    yield found
    found.close()


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Steps]:
    """Give an engine whose queues hold one message at a time."""
    found = Steps(tmp_path / "store", IngestLimits(queue_nbytes=1, rank_queue_nbytes=1, message_nbytes=1 << 20))
    yield found
    found.close()


def refuse(*_: object, **__: object) -> None:
    raise StoreError(Path("history.db"), "is full")


def test_a_stream_that_was_taken_over_sends_nothing_more(narrow: Steps, batches: list[SendRequest]) -> None:
    former = narrow.attach(hello(JOB))
    narrow.begin(former.take(batches[0]))
    waiting = narrow.begin(former.take(batches[1]))
    assert not waiting.done()  # there is no room
    narrow.write()
    narrow.turn()  # the first is durable, and waits to be mined
    latter = narrow.attach(hello(JOB))
    narrow.settle()
    narrow.turn()
    assert isinstance(waiting.exception(), RefusedError)
    rank = narrow.find(JOB)
    assert rank.next == rank.durable
    for request in batches[1:3]:
        narrow.send(latter, request)
    narrow.settle()
    assert rank.accounts.in_flight == 0
    assert rank.view.account.adds_up
    assert rank.view.account.received == rank.view.account.accepted == rank.durable == batches[3].batch.first


def test_a_client_that_goes_while_it_waits_leaves_no_count_behind(narrow: Steps, batches: list[SendRequest]) -> None:
    stream = narrow.attach(hello(JOB))
    narrow.begin(stream.take(batches[0]))
    waiting = narrow.begin(stream.take(batches[1]))
    waiting.cancel()
    narrow.settle()
    assert narrow.find(JOB).accounts.in_flight == 0
    assert narrow.find(JOB).view.account.received == batches[1].batch.first


def test_a_client_that_goes_while_it_attaches_does_not_stay(steps: Steps, batches: list[SendRequest]) -> None:
    stream = steps.attach(hello(JOB))
    steps.begin(stream.take(batches[0]))
    steps.detach(stream)
    attaching = steps.begin(steps.engine.attach(hello(JOB), object()))
    attaching.cancel()
    steps.turn()
    assert attaching.cancelled()
    assert steps.find(JOB).connection is None
    other = steps.attach(hello(JOB, "another"))
    assert other.rank.number != stream.rank.number


def test_a_collector_whose_end_is_durable_is_in_nobodys_way(steps: Steps, batches: list[SendRequest]) -> None:
    """Its client, which has the last answer, may begin the next one before the stream is gone."""
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.begin(stream.take(SendRequest(end=End(await_account=True))))
    with pytest.raises(RefusedError, match="is sent by"):
        steps.attach(hello(JOB, "another"))
    steps.settle()
    other = steps.attach(hello(JOB, "another"))
    assert (stream.rank.ended, other.rank.ended) == (True, False)
    assert not stream.is_open()  # nor does it wait for an account that no one makes any more
    steps.detach(stream)
    assert steps.find(JOB) is other.rank
    assert steps.find(JOB).connection is not None
    steps.send(other, batches[0])
    steps.settle()
    assert other.rank.durable == stream.rank.durable == batches[1].batch.first


@pytest.mark.parametrize("method", ["begin", "close_session", "checkpoint"])
def test_a_collector_is_replaced_or_stays_when_the_history_is_full(
    steps: Steps, batches: list[SendRequest], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.settle()
    steps.detach(stream)
    with monkeypatch.context() as patch:
        patch.setattr(History, method, refuse)
        with pytest.raises(RefusedError, match="cannot be written"):
            steps.attach(hello(JOB, "another"))
    other = steps.attach(hello(JOB, "another"))
    steps.send(other, batches[0])
    steps.settle()
    assert not other.rank.failed
    steps.crash()
    assert steps.find(JOB).hello.collector == "another"
    assert steps.find(JOB).durable == batches[1].batch.first


def test_a_job_is_shown_all_the_time_while_its_collector_is_replaced(
    steps: Steps, batches: list[SendRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.settle()
    steps.detach(stream)
    shown, begin = [], History.begin

    def look(history: History, *words: object) -> int:
        shown.append(steps.engine.roster.find(JOB, 0))
        return begin(history, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(History, "begin", look)
    other = steps.attach(hello(JOB, "another"))
    assert shown == [stream.rank]
    assert steps.find(JOB) is other.rank


def test_nobody_goes_on_with_a_collector_whose_replacement_was_not_begun(
    steps: Steps, batches: list[SendRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.settle()
    steps.detach(stream)
    with monkeypatch.context() as patch:
        patch.setattr(History, "begin", refuse)
        with pytest.raises(RefusedError):
            steps.attach(hello(JOB, "another"))
    again = steps.attach(hello(JOB))
    assert again.rank is not stream.rank  # whose session is closed


def test_who_was_refused_leaves_the_former_collector_as_it_was(
    steps: Steps, batches: list[SendRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.settle()
    steps.detach(stream)
    with monkeypatch.context() as patch:
        patch.setattr(History, "checkpoint", refuse)
        with pytest.raises(RefusedError):
            steps.attach(hello(JOB, "another"))
    again = steps.attach(hello(JOB))
    steps.send(again, batches[1])
    steps.settle()
    assert again.rank is stream.rank
    assert not again.rank.failed
    assert again.rank.view.account.accepted == batches[2].batch.first


def test_the_worker_outlives_orders_that_fail(steps: Steps) -> None:
    def crash() -> None:
        raise RuntimeError("a bug")

    steps.engine.worker.call(refuse)
    steps.engine.worker.call(crash)
    steps.mine()
    assert "is full" in steps.engine.worker.problem
    steps.mine()
    assert steps.run(steps.engine.order(lambda: 7)) == 7


def test_the_journal_is_kept_for_ranks_that_no_checkpoint_knows(
    steps: Steps, batches: list[SendRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(History, "checkpoint", refuse)
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.settle()
    assert steps.engine.worker.needed() < steps.find(JOB).latest
    steps.crash()
    assert steps.find(JOB).durable == batches[1].batch.first
    assert steps.engine.worker.needed() == JournalPlace(0, 0, 0)


@pytest.mark.parametrize("method", ["take", "advance", "save"])
def test_a_rank_that_meets_a_bug_stands_alone(
    steps: Steps, batches: list[SendRequest], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    streams = [steps.attach(hello(name)) for name in ("poisoned", "sound")]
    for stream in streams:
        steps.send(stream, batches[0])
    steps.settle()
    poisoned = steps.find("poisoned").session
    genuine = getattr(RankSession, method)

    def fail(session: RankSession, *args: object) -> object:
        if session is poisoned:
            raise RuntimeError("a bug")
        return genuine(session, *args)

    monkeypatch.setattr(RankSession, method, fail)
    for request in batches[1:4]:
        for stream in streams:
            steps.send(stream, request)
    steps.settle()
    steps.engine.worker.save(steps.engine.roster)
    check_poisoned(steps, batches)
    steps.crash()
    check_poisoned(steps, batches)
    for name in ("poisoned", "sound"):
        stream = steps.attach(hello(name))
        for request in batches[4:]:
            steps.send(stream, request)
        steps.send(stream, SendRequest(end=End()))
    steps.settle()
    assert all(rank.mined_end and rank.view.account.adds_up for rank in steps.engine.roster)


def check_poisoned(steps: Steps, batches: list[SendRequest]) -> None:
    """Check that one rank was given up, the other not, and that both are as far as they were sent."""
    for name, failed in (("poisoned", True), ("sound", False)):
        rank = steps.find(name)
        assert rank.failed is failed
        assert rank.durable == rank.mined == batches[4].batch.first
        assert rank.mined_items == rank.durable_items == 4
        assert rank.names == len(rank.session.names)
        account = rank.accounts.view()
        assert account.adds_up
        assert account.received == rank.durable


def test_what_the_disk_refused_is_sent_again(steps: Steps, batches: list[SendRequest]) -> None:
    stream = steps.attach(hello(JOB))
    steps.send(stream, batches[0])
    steps.settle()
    steps.fail_disk(FULL)
    steps.begin(stream.take(batches[1]))
    steps.begin(stream.take(batches[2]))
    steps.write()
    steps.turn()
    rank = steps.find(JOB)
    assert "No space" in str(rank.broken)
    steps.detach(stream)
    steps.fail_disk(None)
    again = steps.attach(hello(JOB))
    assert rank.next == batches[1].batch.first
    for request in batches[1:]:
        steps.send(again, request)
    steps.settle()
    account = rank.view.account
    assert account.adds_up
    assert account.dropped == {"journal-failed": batches[3].batch.first - batches[1].batch.first}
    assert account.accepted == rank.durable


def test_drain_waits_for_what_is_on_its_way(steps: Steps, batches: list[SendRequest]) -> None:
    stream = steps.attach(hello(JOB))
    steps.begin(stream.take(batches[0]))
    draining = steps.begin(steps.engine.drain())
    assert not draining.done()
    assert steps.run(asyncio.wait_for(draining, PATIENCE_S)) == batches[1].batch.first
    with pytest.raises(RefusedError):
        steps.send(stream, batches[1])
    steps.crash()
    assert steps.find(JOB).saved is not None
    assert steps.find(JOB).mined == batches[1].batch.first


def test_batches_without_records_are_borne(steps: Steps) -> None:
    stream = steps.attach(hello(JOB))
    for _ in range(3):
        steps.send(stream, SendRequest(batch=Batch(first=0)))
    steps.settle()
    steps.crash()
    assert steps.find(JOB).durable == 0
    assert steps.find(JOB).view.account.received == 0


def test_many_ranks_are_saved_a_few_at_a_time(steps: Steps, batches: list[SendRequest]) -> None:
    for number in range(TURN + 3):
        steps.send(steps.attach(hello(JOB, rank=number)), batches[0])
    steps.settle()
    ranks = list(steps.engine.roster)
    steps.clock.now_ns += STATE_NS
    for saved in (TURN, TURN + 3):
        steps.mine()
        assert sum(not rank.unsaved for rank in ranks) == saved


def test_a_turn_takes_no_more_records_than_it_may(steps: Steps, batches: list[SendRequest]) -> None:
    stream = steps.attach(hello(JOB))
    for request in batches[:3]:
        steps.begin(stream.take(request))
    steps.write()
    items = [item for item, _ in stream.rank.queue]
    assert [item for item, _ in next_turn(stream.rank)] == items
    queue = stream.rank.queue
    for index, (item, place) in enumerate(list(queue)):
        queue[index] = (replace(item, count=TURN_RECORDS - 1), place)
    assert len(next_turn(stream.rank)) == 1
    steps.settle()


def test_what_is_on_its_way_to_the_journal_counts_as_waiting(tmp_path: Path, batches: list[SendRequest]) -> None:
    steps = Steps(tmp_path / "store", IngestLimits(rank_queue_nbytes=1))
    stream = steps.attach(hello(JOB))
    steps.begin(stream.take(batches[0]))
    waiting = steps.begin(stream.take(batches[1]))
    assert not waiting.done()
    steps.settle()
    steps.turn()
    assert waiting.done()
    steps.settle()
    steps.turn()
    assert stream.rank.submitted_nbytes == stream.rank.queued_nbytes == steps.engine.queued_nbytes == 0
    steps.close()


def test_what_a_replaced_collector_has_sent_is_mined(steps: Steps, batches: list[SendRequest]) -> None:
    stream = steps.attach(hello(JOB))
    for request in batches:
        steps.begin(stream.take(request))
    steps.write()
    steps.turn()
    steps.detach(stream)
    assert stream.rank.queue
    steps.attach(hello(JOB, "another"))
    assert not stream.rank.queue
    assert not stream.rank.failed
    assert stream.rank.accounts.view().accepted == stream.rank.durable
    summary = next(known for known in steps.engine.history.jobs() if known.job == JOB)
    assert summary.iterations > 0
