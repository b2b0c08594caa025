"""Every sender is kept to its share, by limits that name themselves and who contains what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.config.sections import ShareSection
from deepprof.live.service.housekeeping import take_measure
from deepprof.live.service.ingest import IngestConnection
from deepprof.live.service.rank_eviction import ABANDONED_NS
from deepprof.live.service.refusal import RefusedError
from deepprof.live.service.senders import BURST_NS, RecordRates
from deepprof.live.service.stream_leases import StreamLeases
from deepprof.live.wire.cutting import cut
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, End
from tests.deepprof.live.service.engines import FakeClock, Steps, hello
from tests.deepprof.live.service.traces import gpu_only_trace

SECOND = 10**9


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    engine = Steps(tmp_path)
    yield engine
    engine.close()


def give(steps: Steps, **shares: ShareSection) -> None:
    """Give senders their shares."""
    steps.engine.senders.share_of = lambda name: shares.get(name, ShareSection())


def begin(steps: Steps, job: str, rank: int = 0, owner: str = "") -> IngestConnection:
    """Open a stream that brings something."""
    stream = steps.attach(hello(job, rank=rank), owner)
    steps.send(stream, SendRequest(batch=Batch(names=["kernel"])))
    steps.settle()
    return stream


def test_a_sender_has_as_many_ranks_as_its_share_allows_and_others_have_more(steps: Steps) -> None:
    give(steps, a=ShareSection(ranks=2))
    begin(steps, "one", 0, "a")
    begin(steps, "two", 0, "a")
    with pytest.raises(
        RefusedError, match=r"share\.ranks allows 2, and that many are held \(by one 1, two 1\)"
    ) as refused:
        begin(steps, "two", 1, "a")
    assert (refused.value.code, refused.value.reason) == ("RESOURCE_EXHAUSTED", "share.ranks")
    for number in range(5):
        begin(steps, "other", number, "b")


def test_a_sender_who_comes_back_needs_no_other_place(steps: Steps) -> None:
    give(steps, a=ShareSection(ranks=1))
    steps.detach(begin(steps, "one", 0, "a"))
    assert steps.attach(hello("one"), "a").rank.owner == "a"


def test_a_rank_that_has_ended_makes_room_in_its_senders_share_only(steps: Steps) -> None:
    give(steps, a=ShareSection(ranks=1))
    for owner in ("b", "a"):
        stream = begin(steps, f"ended-{owner}", 0, owner)
        steps.send(stream, SendRequest(end=End()))
        steps.settle()
        steps.detach(stream)
    begin(steps, "new", 0, "a")
    assert sorted(steps.engine.roster.jobs) == ["ended-b", "new"]


def test_who_takes_over_a_rank_needs_room_for_it(steps: Steps) -> None:
    give(steps, a=ShareSection(ranks=1))
    begin(steps, "mine", 0, "a")
    steps.detach(begin(steps, "theirs", 0, "b"))
    steps.clock.now_ns += ABANDONED_NS
    with pytest.raises(RefusedError, match=r"share\.ranks"):
        steps.attach(hello("theirs"), "a")
    assert steps.find("theirs").owner == "b"
    assert steps.attach(hello("theirs"), "c").rank.owner == "c"


def test_who_has_no_room_for_a_rank_ends_nobody_elses(steps: Steps) -> None:
    give(steps, a=ShareSection(ranks=1))
    begin(steps, "mine", 0, "a")
    steps.detach(begin(steps, "theirs", 0, "b"))
    with pytest.raises(RefusedError, match=r"share\.ranks"):
        steps.attach(hello("theirs", collector="another"), "a")
    back = steps.attach(hello("theirs"), "b")
    assert (back.rank.owner, back.rank.durable_names) == ("b", 1)


def test_greetings_that_give_way_leave_no_senders_behind(steps: Steps) -> None:
    begin(steps, "train", 0, "a")
    give(steps, a=ShareSection(ranks=2))
    for rank in range(1, 9):
        steps.detach(steps.attach(hello("train", rank=rank), "a"))
    assert len(steps.engine.history.senders()) == 2


def test_a_rank_that_has_a_past_keeps_its_sender_when_a_greeting_gives_way(steps: Steps) -> None:
    stream = begin(steps, "train", 0, "a")
    steps.send(stream, SendRequest(end=End()))
    steps.settle()
    steps.detach(stream)
    steps.detach(steps.attach(hello("train", collector="another"), "a"))  # begins anew, and brings nothing
    give(steps, a=ShareSection(ranks=1))
    begin(steps, "other", 0, "a")
    assert steps.engine.history.senders() == {("other", 0): "a", ("train", 0): "a"}


@pytest.mark.parametrize("leaves", [False, True])
def test_nobody_takes_a_rank_by_another_senders_collector_name(steps: Steps, leaves: bool) -> None:
    stream = begin(steps, "train", 0, "a")
    if leaves:
        steps.detach(stream)  # and is expected back
    with pytest.raises(RefusedError, match="rank 0 of job 'train' is sent by a, not by b") as refused:
        steps.attach(hello("train"), "b")
    assert (refused.value.code, refused.value.reason) == ("ALREADY_EXISTS", "another-sender")
    if not leaves:
        steps.engine.check_owner(stream.rank, stream.context)  # it goes on
    assert steps.attach(hello("train"), "a").rank.owner == "a"


def test_ranks_of_one_job_stay_their_senders_through_a_restart(steps: Steps) -> None:
    for rank, owner in enumerate(["node-7", "node-8"]):
        begin(steps, "train", rank, owner)
    steps.crash()
    for rank, owner in enumerate(["node-7", "node-8"]):
        assert steps.attach(hello("train", rank=rank), owner).rank.owner == owner


def test_a_sender_may_write_the_jobs_of_its_patterns(steps: Steps) -> None:
    give(steps, a=ShareSection(jobs=("team-a-*", "shared")))
    begin(steps, "team-a-1", 0, "a")
    begin(steps, "shared", 0, "a")
    for job in ("team-b-1", "Shared", "xteam-a-1"):
        text = re.escape(f"a may write the jobs team-a-*, shared, not '{job}'")
        with pytest.raises(RefusedError, match=text) as refused:
            begin(steps, job, 0, "a")
        assert (refused.value.code, refused.value.reason) == ("PERMISSION_DENIED", "share.jobs")
        assert job not in steps.engine.roster.jobs


def test_who_keeps_too_much_brings_no_more_until_a_job_is_forgotten(steps: Steps) -> None:
    stream = steps.attach(hello("large"), "a")
    for batch in cut(gpu_only_trace(iterations=12, kernels=30)):
        steps.send(stream, SendRequest(batch=batch))
    steps.settle()
    steps.run(steps.engine.order(lambda: steps.engine.worker.save(steps.engine.roster)))
    steps.loop.run_until_complete(take_measure(steps.engine))
    (kept,) = [view.kept_nbytes for view in steps.engine.senders.look() if view.sender == "a"]
    assert kept > 0
    give(steps, a=ShareSection(kept_nbytes=kept - 1))
    with pytest.raises(
        RefusedError, match=r"share\.kept_nbytes allows .* bytes, and .* are kept of a \(large "
    ) as refused:
        steps.send(stream, SendRequest(batch=Batch(first=stream.rank.next)))
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    with pytest.raises(RefusedError, match=r"share\.kept_nbytes"):
        begin(steps, "small", 0, "a")
    begin(steps, "small", 0, "b")
    steps.detach(stream)
    steps.run(steps.engine.forget("large"))
    steps.loop.run_until_complete(take_measure(steps.engine))
    begin(steps, "small-too", 0, "a")


def test_whose_a_job_is_outlives_the_daemon_and_the_job(steps: Steps) -> None:
    give(steps, a=ShareSection(ranks=1))
    begin(steps, "train", 0, "a")
    steps.crash()
    give(steps, a=ShareSection(ranks=1))
    assert steps.find("train").owner == "a"
    with pytest.raises(RefusedError, match=r"share\.ranks"):
        begin(steps, "other", 0, "a")
    steps.run(steps.engine.forget("train"))
    assert steps.engine.history.senders() == {}


def test_a_sender_that_is_too_fast_waits_and_is_not_refused(steps: Steps) -> None:
    give(steps, a=ShareSection(records_per_s=10))
    stream, other = begin(steps, "fast", 0, "a"), begin(steps, "other", 0, "b")
    steps.engine.senders.note_records("a", 30)
    waiting = steps.begin(stream.take(SendRequest(batch=Batch(names=["more"], first_name=1))))
    steps.send(other, SendRequest(batch=Batch(names=["more"], first_name=1)))
    assert stream.waits
    assert not waiting.done()
    steps.clock.now_ns += 2 * SECOND
    steps.loop.run_until_complete(waiting)
    assert not stream.waits
    (view,) = [view for view in steps.engine.senders.look() if view.sender == "a"]
    assert (view.records, view.ranks, view.connected) == (30, 1, 1)
    assert view.paced_ns > 0


def test_what_waits_outside_is_bounded_and_never_all_of_one_sender(steps: Steps) -> None:
    """Each stream may have a large message waiting, and a daemon many streams."""
    steps.engine.outside = StreamLeases("limits.waiting_nbytes", "bytes of messages wait", 1000)
    give(steps, a=ShareSection(records_per_s=1), b=ShareSection(records_per_s=1))
    streams = [begin(steps, "train", rank, "a") for rank in range(6)]
    other = begin(steps, "train", 9, "b")
    for owner in "ab":
        steps.engine.senders.note_records(owner, 10**6)
    message = SendRequest(batch=Batch(names=["x" * 200], first_name=1))
    waiting = [steps.begin(stream.take(message)) for stream in (*streams, other)]
    refused = [task.exception() for task in waiting if task.done()]
    assert [type(error) for error in refused] == [RefusedError] * 4  # two of a wait: it may have half
    assert all("limits.waiting_nbytes: 1,000 bytes" in str(error) and "held by a 4" in str(error) for error in refused)
    assert not waiting[-1].done()
    give(steps)
    steps.loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
    assert not steps.engine.outside


def test_one_who_waits_is_let_go_when_the_limit_goes(steps: Steps) -> None:
    give(steps, a=ShareSection(records_per_s=1))
    stream = begin(steps, "fast", 0, "a")
    steps.engine.senders.note_records("a", 10**6)
    waiting = steps.begin(stream.take(SendRequest(batch=Batch(names=["more"], first_name=1))))
    give(steps)
    steps.loop.run_until_complete(waiting)


def test_a_higher_rate_counts_for_what_came_before_it() -> None:
    clock = FakeClock(0)
    pace = RecordRates(clock)
    pace.count("a", 36_000, 10)
    assert pace.wait_ns("a", 10) == 3599 * SECOND
    clock.now_ns += 600 * SECOND
    assert pace.wait_ns("a", 1000) == 0
    pace.count("a", 3_000, 1000)
    assert pace.wait_ns("a", 1000) == 2 * SECOND


def test_one_who_waits_hears_that_the_daemon_drains(steps: Steps) -> None:
    give(steps, a=ShareSection(records_per_s=1))
    stream = begin(steps, "fast", 0, "a")
    steps.engine.senders.note_records("a", 10**6)
    waiting = steps.begin(stream.take(SendRequest(batch=Batch(names=["more"], first_name=1))))
    steps.engine.stop_taking()
    with pytest.raises(RefusedError, match="stopping"):
        steps.loop.run_until_complete(waiting)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 500)), max_size=40),
)
def test_a_pace_lets_in_what_the_rate_allows_and_no_less(rate: int, messages: list[tuple[int, int]]) -> None:
    """Against the definition: what was let in by any time, the last message left out, is within rate and burst."""
    clock = FakeClock(0)
    pace = RecordRates(clock)
    let_in = list[tuple[int, int]]()
    for pause_ns, records in messages:
        clock.now_ns += pause_ns
        wait_ns = pace.wait_ns("a", rate)
        arrived = clock.now_ns
        clock.now_ns += wait_ns
        assert pace.wait_ns("a", rate) == 0
        let_in.append((clock.now_ns, records))
        pace.count("a", records, rate)
        for since, (begun, _) in enumerate(let_in):
            total = sum(count for _, count in let_in[since:-1])
            assert total * SECOND <= rate * (clock.now_ns - begun + BURST_NS) + SECOND * len(let_in)
        if wait_ns:  # it had to: without it a full burst was ahead
            ahead = max(
                sum(count for _, count in let_in[since:-1]) * SECOND / rate - (arrived - begun)
                for since, (begun, _) in enumerate(let_in[:-1])
            )
            assert ahead > BURST_NS - len(let_in)
    assert pace.records["a"] == sum(records for _, records in messages)


def test_a_text_that_names_no_rank_names_no_sender(steps: Steps) -> None:
    begin(steps, "a job with blanks", 3, "a")
    steps.engine.history.save_text("sender x y", "b")
    steps.engine.history.save_text("sender ", "b")
    assert steps.engine.history.senders() == {("a job with blanks", 3): "a"}
