"""An error at every place of the agent: it goes on and serves an honest job, or it ends, says why and loses nothing."""

from __future__ import annotations

import pytest

from tests.deepprof.live.agent.faults.not_passed import NOT_PASSED
from tests.deepprof.live.service.faults.shards import PATIENCE_S, check_shard, list_places
from tests.widening import slow_unless

SHARDS = 9
MODULE = "tests.deepprof.live.agent.faults.every_place"


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("shard", slow_unless(lambda shard: shard == 0, range(SHARDS)))
def test_an_error_at_any_place_ends_the_agent_with_its_reason_or_one_connection(shard: int) -> None:
    check_shard(MODULE, shard, SHARDS, NOT_PASSED)


def test_places_that_are_not_passed_are_places() -> None:
    assert NOT_PASSED.keys() <= set(list_places(MODULE))
    assert all(NOT_PASSED.values())
