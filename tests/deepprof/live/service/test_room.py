"""No one is locked out by greetings that nothing follows, and the operator sees who was refused what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from deepprof.live.service.config.sections import IngestLimits
from deepprof.live.service.ingest import IngestConnection
from deepprof.live.service.rank_eviction import ABANDONED_NS, LimitReached, choose_spare
from deepprof.live.service.refusal import RefusedError
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, End
from tests.deepprof.live.service.daemons import running, wait_for
from tests.deepprof.live.service.engines import Steps, hello
from tests.deepprof.live.service.raw import RawStream


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    engine = Steps(tmp_path, IngestLimits(jobs=4, ranks=4, ranks_total=6))
    yield engine
    engine.close()


def begin(steps: Steps, job: str, rank: int = 0, *, names: int = 1) -> IngestConnection:
    """Open a stream that brings a batch of this many names; 0: nothing."""
    stream = steps.attach(hello(job, rank=rank))
    if names:
        steps.send(stream, SendRequest(batch=Batch(names=[f"kernel {n}" for n in range(names)])))
        steps.settle()
    return stream


def end(steps: Steps, stream: IngestConnection) -> None:
    steps.send(stream, SendRequest(end=End()))
    steps.settle()
    steps.detach(stream)


def jobs(steps: Steps) -> list[str]:
    return sorted(steps.engine.roster.jobs)


def test_greetings_without_records_give_way_and_leave_nothing_behind(steps: Steps) -> None:
    for n in range(4):
        steps.detach(begin(steps, f"empty-{n}", names=0))
    begin(steps, "new")
    assert jobs(steps) == ["empty-1", "empty-2", "empty-3", "new"]
    assert "empty-0" not in {known.job for known in steps.engine.history.jobs()}


def test_greetings_that_stay_connected_give_way_too(steps: Steps) -> None:
    streams = [begin(steps, f"empty-{n}", names=0) for n in range(4)]
    begin(steps, "new")
    assert jobs(steps) == ["empty-1", "empty-2", "empty-3", "new"]
    with pytest.raises(RefusedError, match="connect again") as refused:
        steps.engine.check_owner(streams[0].rank, streams[0].context)
    assert refused.value.code == "UNAVAILABLE"  # a client waits and comes back


def test_jobs_that_are_needed_stay(steps: Steps) -> None:
    for n in range(4):
        begin(steps, f"busy-{n}")
    with pytest.raises(RefusedError, match=r"limits\.jobs allows 4, and that many are held \(by nobody known 4\)"):
        begin(steps, "new")
    assert jobs(steps) == [f"busy-{n}" for n in range(4)]


def test_the_order_is_empty_done_abandoned_idle(steps: Steps) -> None:
    begin(steps, "idle", names=0)
    abandoned, done, empty = begin(steps, "abandoned"), begin(steps, "done"), begin(steps, "empty", names=0)
    steps.detach(abandoned)
    end(steps, done)
    steps.detach(empty)
    steps.clock.now_ns += ABANDONED_NS
    for n, gone in enumerate(["empty", "done", "abandoned", "idle"]):
        before = set(jobs(steps))
        begin(steps, f"new-{n}")
        assert before - set(jobs(steps)) == {gone}
    with pytest.raises(RefusedError):
        begin(steps, "one more")


def test_a_job_that_broke_off_is_waited_for_a_while(steps: Steps) -> None:
    for n in range(4):
        steps.detach(begin(steps, f"job-{n}"))
    steps.clock.now_ns += ABANDONED_NS - 1
    with pytest.raises(RefusedError):
        begin(steps, "new")
    steps.clock.now_ns += 1
    begin(steps, "new")


def test_after_a_start_all_have_time_to_come_back(steps: Steps) -> None:
    for n in range(4):
        begin(steps, f"job-{n}")
    steps.clock.now_ns += ABANDONED_NS
    steps.crash()
    steps.engine.note_start()
    with pytest.raises(RefusedError):
        begin(steps, "new")


def test_who_holds_most_gives_way_first(steps: Steps) -> None:
    for n, owner in enumerate(["few", "many", "many", "many"]):
        begin(steps, f"job-{n}", names=0).rank.owner = owner
    begin(steps, "new")
    assert jobs(steps) == ["job-0", "job-2", "job-3", "new"]


def test_empty_ranks_give_way_where_ranks_are_counted(steps: Steps) -> None:
    kept = begin(steps, "a", 0)
    for n in (1, 2, 3):
        steps.detach(begin(steps, "a", n, names=0))
    begin(steps, "a", 4)  # limits.ranks
    assert sorted(steps.engine.roster.jobs["a"]) == [0, 4]
    for n in range(4):
        begin(steps, "b", n, names=0)
    begin(steps, "c", 0)  # limits.ranks_total
    assert len(steps.engine.roster.jobs["a"]) == 2
    assert steps.find("a").connection is kept.context
    steps.find("c")


def test_nobody_is_spared_of_none() -> None:
    assert choose_spare(LimitReached("limits.jobs", 1, "", [], whole=True), 0) == []


def greet(stack: ExitStack, daemon: object, job: str) -> RawStream:
    stream = stack.enter_context(RawStream(daemon))  # type: ignore[arg-type]
    stream.say(hello=hello(job))
    return stream


def test_streams_that_bring_nothing_give_way_to_a_new_one() -> None:
    with running(settings=["limits.streams=3"]) as daemon, ExitStack() as stack:
        idle = greet(stack, daemon, "idle")
        idle.hear()
        busy = greet(stack, daemon, "busy")
        busy.say(batch=Batch(names=["kernel"]))
        wait_for(lambda: busy.hear().names == 1, "it is durable")
        silent = stack.enter_context(RawStream(daemon))  # never states who it is
        wait_for(lambda: "deepprof_streams 3\n" in daemon.get("/metrics")[1], "it is there")
        first = greet(stack, daemon, "first")
        first.hear()
        assert silent.fate() == grpc.StatusCode.UNAVAILABLE
        first.say(batch=Batch(names=["kernel"]))
        wait_for(lambda: first.hear().names == 1, "it is durable")
        second = greet(stack, daemon, "second")
        second.hear()
        assert idle.fate() == grpc.StatusCode.UNAVAILABLE
        second.say(batch=Batch(names=["kernel"]))
        wait_for(lambda: second.hear().names == 1, "it is durable")
        assert greet(stack, daemon, "third").fate() == grpc.StatusCode.RESOURCE_EXHAUSTED
        line = wait_for(lambda: daemon.event("stream-refused"), "it is logged")
        while line["reason"] == "cut":  # those that gave way
            daemon.log.remove(line)
            line = wait_for(lambda: daemon.event("stream-refused"), "it is logged")
        assert line["reason"] == "limits.streams"
        assert "limits.streams allows 3, and that many are held (by socket 3)" in line["problem"]


def test_what_is_refused_is_logged_and_counted() -> None:
    with running() as daemon:
        with RawStream(daemon) as stream:
            stream.say(hello=hello("train", rank=3))
            stream.say(batch=Batch(first_name=7, names=["kernel"]))
            assert stream.fate() == grpc.StatusCode.INVALID_ARGUMENT
        line = wait_for(lambda: daemon.event("message-refused"), "it is logged")
        assert [line[key] for key in ("level", "token", "reason")] == ["warning", "socket", "invalid-message"]
        assert (line["job"], line["rank"]) == ("train", 3)
        assert "first_name" in line["problem"]
        assert line["peer"]
        metrics = daemon.get("/metrics")[1]
        assert 'deepprof_refusals_total{reason="invalid-message",token="socket"} 1' in metrics
        assert "deepprof_refused_messages_total 1" in metrics


def test_a_refused_stream_is_logged_with_its_reason() -> None:
    with running(settings=["limits.jobs=1"]) as daemon, ExitStack() as stack:
        busy = greet(stack, daemon, "busy")
        busy.say(batch=Batch(names=["kernel"]))
        wait_for(lambda: busy.hear().names == 1, "it is durable")
        assert greet(stack, daemon, "other").fate() == grpc.StatusCode.RESOURCE_EXHAUSTED
        line = wait_for(lambda: daemon.event("stream-refused"), "it is logged")
        assert (line["reason"], line["job"]) == ("limits.jobs", "other")
        assert "socket 1" in line["problem"]
