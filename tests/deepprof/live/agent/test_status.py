"""Whatever the agent states of a collector, the daemon takes it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.wire import check_status
from deepprof.live.wire.checking import encode_status
from deepprof.live.wire.figures import CollectorStatus
from deepprof.v1 import records_pb2 as pb

NUMBERS = st.integers(-(2**70), 2**70)


def test_a_status_says_what_it_was_told() -> None:
    status = CollectorStatus(
        level="duty", reason="overhead", since_unix_ns=7, duty_ratio=0.25, overhead_ratio=0.02, lost=3
    )
    assert encode_status(status) == pb.Status(
        level=pb.COLLECTOR_LEVEL_DUTY,
        reason="overhead",
        since_unix_ns=7,
        duty_ratio=0.25,
        overhead_ratio=0.02,
        lost=3,
    )
    assert encode_status(CollectorStatus()).level == pb.COLLECTOR_LEVEL_FULL
    assert encode_status(CollectorStatus(level="off")).level == pb.COLLECTOR_LEVEL_OFF


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -1.0])
def test_a_ratio_that_is_none_is_nothing(ratio: float) -> None:
    message = encode_status(CollectorStatus(overhead_ratio=ratio, duty_ratio=ratio))
    assert (message.overhead_ratio, message.duty_ratio) == (0, 0)


@given(
    st.builds(
        CollectorStatus,
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
def test_every_status_is_taken(status: CollectorStatus) -> None:
    message = encode_status(status)
    check_status(message)
    assert pb.Status.FromString(message.SerializeToString()) == message
