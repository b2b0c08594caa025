"""Replaying: at the speed of the recording, many times over, from wherever it is called."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.clocks import shift
from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Accounting, Trace
from deepprof.live.client.repetition import cut_repeated, measure_period
from deepprof.live.client.replay import TraceReplay, choose_records, find_zeros, name_sending, replay
from deepprof.live.client.sender import SendPolicy
from deepprof.simulation import simulate, write
from tests.deepprof.builders import build_trace

from .test_sender import FastClock

POLICY = SendPolicy(reach_s=10, patience_s=10)


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Trace:
    path = tmp_path_factory.mktemp("job") / "job.json.gz"
    write(simulate("healthy", iterations=6), path)
    return deepprof.read(path)


@pytest.mark.parametrize("speed", [1.0, 10.0, 0.5])
def test_it_takes_the_time_of_the_recording(daemon, endpoint, trace, speed):
    clock = FastClock()
    totals = replay(endpoint, [trace], TraceReplay("j", speed, policy=POLICY), clock=clock)
    assert totals.seconds == pytest.approx((measure_period(trace) / 1e9) / speed, rel=0.02)
    assert daemon.rank().durable == trace.accounting.kept


def test_without_a_speed_nobody_waits(daemon, endpoint, trace):
    clock = FastClock()
    assert replay(endpoint, [trace], TraceReplay("j", policy=POLICY), clock=clock).seconds == 0
    assert clock.pauses == []


def test_repetitions_take_their_time(daemon, endpoint, trace):
    clock = FastClock()
    totals = replay(endpoint, [trace], TraceReplay("j", 1.0, 3, policy=POLICY), clock=clock)
    assert totals.seconds == pytest.approx(3 * measure_period(trace) / 1e9, rel=0.02)
    assert totals.durable == 3 * trace.accounting.kept


def test_progress_ends_where_all_is_durable(daemon, endpoint, trace):
    told = []
    replay(endpoint, [trace], TraceReplay("j", policy=POLICY), watch=lambda *both: told.append(both))
    assert told[-1] == (trace.accounting.kept, trace.accounting.kept)
    assert told == sorted(told)


def test_it_works_where_a_loop_runs_already(daemon, endpoint, trace):
    async def call():
        return replay(endpoint, [trace], TraceReplay("j", policy=POLICY))

    assert asyncio.run(call()).durable == trace.accounting.kept


def test_a_name_follows_from_what_is_sent(trace):
    names = {
        name_sending(trace, TraceReplay("j")),
        name_sending(trace, TraceReplay("j", repeat=2)),
        name_sending(shift(trace, 1), TraceReplay("j")),
        name_sending(build_trace(), TraceReplay("j")),
    }
    assert len(names) == 4
    assert name_sending(trace, TraceReplay("other")) in names
    assert all(len(name) <= 64 for name in names)


def test_batches_at_the_speed_of_the_recording_are_small(trace):
    assert choose_records(trace, None) == 8192
    assert 64 <= choose_records(trace, 0.001) < choose_records(trace, 1) <= 8192
    assert choose_records(build_trace(), 1) == 8192


def test_ranks_begin_together_where_their_clocks_do(trace):
    later = shift(trace, 5_000)
    start = find_zeros([trace])[0]
    assert find_zeros([trace, later]) == [start, start]
    session = replace(later, clock="session")
    assert find_zeros([trace, session]) == [start, start + 5_000]


def test_repetitions_number_on(trace):
    firsts = [(batch.first, count) for batch, count in cut_repeated(trace, 3, 1000)]
    assert [first for first, _ in firsts] == [sum(count for _, count in firsts[:at]) for at in range(len(firsts))]
    assert sum(count for _, count in firsts) == 3 * trace.accounting.kept
    batches = [batch for batch, _ in cut_repeated(trace, 3, 1000)]
    assert [batch.complete_until_ns for batch in batches] == sorted(batch.complete_until_ns for batch in batches)


def test_repetitions_beyond_all_time_are_refused(trace):
    with pytest.raises(UsageError, match="less often"):
        list(cut_repeated(trace, 10**12, 1000))


def test_a_trace_without_records_is_sent_all_the_same(daemon, endpoint):
    empty = build_trace(accounting=Accounting(0, 0))
    assert replay(endpoint, [empty], TraceReplay("j", 1.0, 3, policy=POLICY), clock=FastClock()).durable == 0
    assert daemon.rank().ended


def test_a_name_that_no_daemon_takes_is_one_line(endpoint, trace):
    with pytest.raises(UsageError, match="cannot be sent"):
        replay(endpoint, [trace], TraceReplay("a job"))
