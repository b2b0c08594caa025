"""Messages cut into pieces, against a plain account of what was put into them."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.importers.xla import wire as xplane_wire
from deepprof.collectors.importers.xla.wire import ProtobufError, cut, fields
from tests.collectors.xplane_profile import data, number, varint

NUMBERS = st.integers(1, 2**29 - 1)
FIXED = st.sampled_from([(1, 8), (5, 4)])
FIELD = st.one_of(
    st.builds(lambda at, value: (at, 2, data(at, value)), NUMBERS | st.just(4), st.binary(max_size=300)),
    st.builds(lambda at, value: (at, 0, number(at, value)), NUMBERS | st.just(4), st.integers(0, 2**64 - 1)),
    st.builds(lambda at, kind: (at, kind[0], varint(at << 3 | kind[0]) + b"x" * kind[1]), NUMBERS, FIXED),
)
MESSAGE = st.lists(FIELD, max_size=20)


@given(MESSAGE, st.binary(max_size=3), st.binary(max_size=3))
def test_fields_are_found_where_they_are(message, before, after):
    content = bytearray(before + b"".join(part for *_, part in message) + after)
    found = list(fields(content, len(before), len(content) - len(after)))
    assert [(key >> 3, key & 7, bytes(content[begin:end])) for key, begin, _, end in found] == message


@given(MESSAGE)
def test_a_message_comes_apart_without_loss(message):
    content = bytearray(b"".join(part for *_, part in message))
    wanted = [part for at, kind, part in message if (at, kind) == (4, 2)]
    parts = cut(content, 0, len(content), 4)
    assert [data(4, bytes(content[begin:end])) for begin, end in parts.bodies] == wanted
    assert parts.rest == b"".join(part for at, kind, part in message if (at, kind) != (4, 2))
    assert (parts.count, parts.others) == (len(wanted), len(message) - len(wanted))


@given(MESSAGE, st.sampled_from([0, 100, 10**6]))
def test_runs_hold_whole_fields_that_follow_each_other(message, nbytes):
    content = bytearray(b"".join(part for *_, part in message))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xplane_wire, "RUN_NBYTES", nbytes)
        patch.setattr(xplane_wire, "SHORTEST_NBYTES", 0)
        parts = cut(content, 0, len(content), 4, runs=True)
    runs = [bytes(content[begin:end]) for begin, end in parts.runs]
    groups = groupby(message, key=lambda one: one[:2] == (4, 2))
    together = [[part for *_, part in group] for ours, group in groups if ours]
    assert b"".join(runs) == b"".join(part for group in together for part in group)
    if nbytes == 10**6:
        assert runs == [b"".join(group) for group in together]
    if nbytes == 0:
        assert len(runs) == parts.count


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(content):
    try:
        found = list(fields(bytearray(content), 0, len(content)))
    except ProtobufError:
        return
    assert sum(end - begin for _, begin, _, end in found) == len(content)


@pytest.mark.parametrize(
    "content",
    [b"\x0a", b"\x0a\x05abc", b"\x08", b"\x08" + b"\xff" * 11, b"\x09abc", b"\x0b", b"\x0e", b"\x02\x00", b"\xff"],
)
def test_what_is_no_message_is_refused(content):
    with pytest.raises(ProtobufError, match=r"at byte [01]$"):
        list(fields(bytearray(content), 0, len(content)))
