"""What collectors state that they lost: iterations do not reach over it, and it is counted once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import deepprof
from deepprof.live.wire.checking import count_records
from deepprof.v1.records_pb2 import Batch, Gap
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.raw import RawStream
from tests.deepprof.live.service.sending import check_accounts, open_client

from .test_daemon_faults import CODE, batches, hello, trace

__all__ = ["batches", "trace"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found
        with open_client(found) as client:
            check_accounts(client)


def test_no_iteration_reaches_over_a_gap(daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]) -> None:
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "gap"))
        for batch in batches[:3]:
            stream.say(batch=batch)
        first, lost = batches[3].first, count_records(batches[3])
        stream.say(gap=Gap(first=first, lost=lost, reason="buffer-full"))
        for batch in batches[4:]:
            stream.say(batch=batch)
        stream.hear_durable(trace.accounting.kept)
    edge = trace.device_events["start_ns"][first], trace.device_events["start_ns"][first + lost]
    with open_client(daemon) as client:
        wait_for(lambda: client.ranks("gap")[0].account.accepted == trace.accounting.kept - lost, "all is mined")
        found = client.ranks("gap")[0].account
        assert (found.gaps, found.lost) == (1, lost)
        rows = client.iterations("gap").filter("complete")
        over = (rows["start_ns"] < edge[1]) & (rows["end_ns"] > edge[0])
        assert rows.height > 0
        assert not over.any()


def test_a_gap_that_is_sent_again_is_one_gap(daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]) -> None:
    first = batches[1].first
    pauses = [Gap(first=first, reason="duty-cycle"), Gap(first=first, reason="clock-set")]
    for turn in range(3):  # one without a number leaves no mark in the numbers: who lost the connection sends it again
        with RawStream(daemon) as stream:
            stream.say(hello=hello(trace, "again"))
            for batch in batches[: turn == 0]:
                stream.say(batch=batch)
            for gap in pauses:
                stream.say(gap=gap)
            for batch in batches[1 : 1 if turn < 2 else None]:
                stream.say(batch=batch)
            stream.words.put(None)
            assert stream.fate() is CODE.OK
    with open_client(daemon) as client:
        wait_for(lambda: client.ranks("again")[0].account.accepted == trace.accounting.kept, "all is mined")
        found = client.ranks("again")[0].account
        assert (found.gaps, found.lost, found.duplicate) == (2, 0, 0)
