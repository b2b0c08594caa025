"""An error at every place of the daemon where one can come from: no call, rank or chore takes the others along unheard.

Either the daemon goes on, states that it lives and serves an honest sender, or it ends and states why; and one that
starts on the same store has everything that was acknowledged, once."""

from __future__ import annotations

import pytest

from tests.deepprof.live.service.faults.not_passed import NOT_PASSED
from tests.deepprof.live.service.faults.shards import PATIENCE_S, check_shard, list_places
from tests.widening import slow_unless

SHARDS = 32
MODULE = "tests.deepprof.live.service.faults.every_place"


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("shard", slow_unless(lambda shard: shard == 0, range(SHARDS)))
def test_an_error_at_any_place_ends_the_daemon_with_its_reason_or_one_call(shard: int) -> None:
    check_shard(MODULE, shard, SHARDS, NOT_PASSED)


def test_places_that_are_not_passed_are_places() -> None:
    assert NOT_PASSED.keys() <= set(list_places(MODULE))
    assert all(NOT_PASSED.values())


def test_the_places_are_those_of_the_code() -> None:
    """One of every kind: awaits, loops and functions of threads, and what the event loop is given to call."""
    assert {
        "service.ingest:IngestConnection.read: self.context.read()",
        "service.ingest:_read_hello: asyncio.timeout(HELLO_S)",
        "service.query:QueryServicer.write_windows: messages",
        "service.worker:SessionWorker._run: while not (self._is_idle(TICK_NS / 1000000000.0) and self._c",
        "service.writer:JournalWriter._write: called",
        "service.engine:Engine._settle: called",
    } <= set(list_places(MODULE))
