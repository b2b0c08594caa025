"""Whatever the agent says of a collector, the daemon takes it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.status import CollectionStatus, to_message
from deepprof.live.wire import WireLimits, check_status
from deepprof.v1 import records_pb2 as pb

NUMBERS = st.integers(-(2**70), 2**70)


def test_a_status_says_what_it_was_told() -> None:
    status = CollectionStatus(
        level="duty", reason="overhead", since_unix_ns=7, duty_ratio=0.25, overhead_ratio=0.02, lost=3
    )
    assert to_message(status) == pb.Status(
        level=pb.COLLECTOR_LEVEL_DUTY,
        reason="overhead",
        since_unix_ns=7,
        duty_ratio=0.25,
        overhead_ratio=0.02,
        lost=3,
    )
    assert to_message(CollectionStatus()).level == pb.COLLECTOR_LEVEL_FULL
    assert to_message(CollectionStatus(level="off")).level == pb.COLLECTOR_LEVEL_OFF


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -1.0])
def test_a_ratio_that_is_none_is_nothing(ratio: float) -> None:
    message = to_message(CollectionStatus(overhead_ratio=ratio, duty_ratio=ratio))
    assert (message.overhead_ratio, message.duty_ratio) == (0, 0)


@given(
    st.builds(
        CollectionStatus,
        level=st.sampled_from(["full", "duty", "off"]),
        reason=st.text(max_size=200),
        notice=st.text(max_size=600),
        since_unix_ns=NUMBERS,
        duty_ratio=st.floats(),
        overhead_ratio=st.floats(),
        spool_nbytes=NUMBERS,
        lost=NUMBERS,
        level_changes=NUMBERS,
    )
)
def test_every_status_is_taken(status: CollectionStatus) -> None:
    message = to_message(status)
    check_status(message, WireLimits())
    assert pb.Status.FromString(message.SerializeToString()) == message
