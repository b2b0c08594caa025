"""Datagrams as Kineto writes them, and as no one should."""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import UsageError
from deepprof.live.agent.kineto.messages import (
    DATAGRAM_NBYTES,
    ConfigurationRequest,
    MessageError,
    ProcessRegistration,
    make_answer,
    make_count,
    read_message,
)
from deepprof.live.agent.kineto.schedule import (
    LEAST_AHEAD_S,
    MOST_AHEAD_S,
    POLL_S,
    WindowSchedule,
    make_config,
    parse_schedule,
)


def datagram(kind: bytes, payload: bytes, nbytes: int | None = None) -> bytes:
    return struct.pack("<Q32s", len(payload) if nbytes is None else nbytes, kind) + payload


def request(pids, purpose=3, count=None):
    return struct.pack(f"<iiq{len(pids)}i", purpose, len(pids) if count is None else count, 0, *pids)


def test_what_kineto_says():
    assert read_message(datagram(b"ctxt", struct.pack("<iiq", 0, 77, 5))) == ProcessRegistration(77)
    assert read_message(datagram(b"req", request([77, 5, 1]))) == ConfigurationRequest(77, ready=True)
    assert read_message(datagram(b"req", request([77], purpose=1))) == ConfigurationRequest(77, ready=False)
    assert read_message(datagram(b"perf", b"whatever")) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 39,
        datagram(b"req", request([7]), nbytes=2**63),
        datagram(b"req", request([7]), nbytes=0),
        datagram(b"req", request([7], count=2**31 - 1)),
        datagram(b"req", request([7], count=-1)),
        datagram(b"req", request([7], count=0)),
        datagram(b"req", request([])),
        datagram(b"req", request([1] * 300)),
        datagram(b"req", request([-4])),
        datagram(b"ctxt", b""),
        datagram(b"ctxt", struct.pack("<iiq", 0, 0, 0)),
        datagram(b"ctxt", struct.pack("<iiq", 0, 1, 0) + b"\0"),
    ],
)
def test_what_nobody_should_say(data):
    with pytest.raises(MessageError):
        read_message(data)


@given(st.binary(max_size=200) | st.builds(datagram, st.sampled_from([b"ctxt", b"req", b"x"]), st.binary(max_size=99)))
def test_any_bytes_are_a_message_or_refused(data):
    with contextlib.suppress(MessageError):
        assert isinstance(read_message(data), ProcessRegistration | ConfigurationRequest | None)


def test_answers_are_read_by_who_reads_messages():
    assert make_answer("A=b\n") == datagram(b"req", b"A=b\n")
    assert make_answer() == datagram(b"req", b"")
    assert make_count(3) == datagram(b"ctxt", struct.pack("<i", 3))
    assert len(datagram(b"req", request([1] * 256))) <= DATAGRAM_NBYTES


@given(st.floats(30, 3600), st.floats(1e9, 2e9), st.floats(0, 10))
def test_everybody_is_given_the_same_start(every_s, now_s, phase_s):
    """Two processes that ask each five seconds, at any phases, get the same starts, each once, in time to warm up."""
    starts = []
    for first_s in (now_s, now_s + phase_s % POLL_S):
        mine, last_s = [], None
        for poll in range(int(3 * every_s / POLL_S)):
            at_s = first_s + poll * POLL_S
            start_s = WindowSchedule(every_s).next_start_s(at_s, last_s)
            if start_s is not None:
                assert LEAST_AHEAD_S - 1e-3 <= start_s - at_s <= MOST_AHEAD_S + 1e-3
                mine.append(start_s)
                last_s = start_s
        starts.append(mine)
        assert len(mine) in (2, 3, 4)
        assert all(abs(b - a - every_s) < 1e-3 for a, b in pairwise(mine))
    assert set(starts[0][1:-1]) <= set(starts[1])


def test_short_schedules_do_not_wait_for_others():
    schedule = WindowSchedule(10.0, 500)
    first = schedule.next_start_s(100.0, None)
    assert first == 100 + LEAST_AHEAD_S
    assert schedule.next_start_s(105.0, first) is None
    assert schedule.next_start_s(110.0, first) == 110 + LEAST_AHEAD_S


def test_the_configuration_is_kinetos(tmp_path):
    lines = make_config(tmp_path / "w.json", 1234.5, WindowSchedule(60, 2000)).splitlines()
    assert dict(line.split("=") for line in lines) == {
        "ACTIVITIES_LOG_FILE": str(tmp_path / "w.json"),
        "PROFILE_START_TIME": "1234500",
        "ACTIVITIES_DURATION_MSECS": "2000",
        "ACTIVITIES_WARMUP_PERIOD_SECS": "2",
    }


@pytest.mark.parametrize(("text", "schedule"), [("60:2000", (60, 2000)), ("30", (30, 2000)), ("2.5:50", (2.5, 50))])
def test_a_schedule_as_typed(text, schedule):
    assert parse_schedule(text) == WindowSchedule(*schedule)


@pytest.mark.parametrize("text", ["", "x", "0", "60:", "60:x", "60:10", "1:2000", "nan", "inf", "60:70000", "1e9"])
def test_a_schedule_that_makes_no_sense(text):
    if text == "60:":
        assert parse_schedule(text) == WindowSchedule(60, 2000)
        return
    with pytest.raises(UsageError):
        parse_schedule(text)
