"""Kineto events decoded piece by piece: nothing is lost between the pieces, and memory stays bounded."""

import json

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import kineto_pieces, kineto_schema
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.importers.kineto_pieces import EventDecoder, decode_pieces

TRAP = "}, {" * 9
INNER = st.sampled_from([None, 1, TRAP, [{}, {}], {"a": [{"b": 1}, {}]}, "\\", '"', "x" * 50])
EVENTS = st.lists(st.fixed_dictionaries({"name": st.sampled_from(["k", TRAP, '"},{"']), "args": INNER}), max_size=40)


def shrink(patch):
    patch.setattr(kineto_pieces, "PIECE_NBYTES", 100)
    patch.setattr(kineto_pieces, "TAIL_NBYTES", 30)


@pytest.fixture
def small_pieces(monkeypatch):
    shrink(monkeypatch)


def names_of(text):
    decoder = EventDecoder("path", details=False)
    events = msgspec.json.decode(text, type=msgspec.Raw)
    found = [event.name for batch in decode_pieces(events, decoder) for event in batch]
    assert decoder.read == len(found) + decoder.undecodable
    return found, decoder.undecodable


@settings(deadline=None)
@given(EVENTS, st.sampled_from([None, 0, 2]))
@example([{"name": TRAP, "args": None}] * 30, None)
def test_pieces_hold_the_events_in_order(events, indent):
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        text = json.dumps(events, indent=indent).encode()
        assert names_of(text) == ([event["name"] for event in events], 0)


def test_what_is_no_event_is_counted_in_every_piece(small_pieces):
    events = [5 if at % 9 == 1 else {"name": f"k{at}", "args": {"x": 7 * "y"}} for at in range(100)]
    names, undecodable = names_of(json.dumps(events).encode())
    assert (names, undecodable) == ([f"k{at}" for at in range(100) if at % 9 != 1], 11)


def test_an_event_larger_than_a_piece_is_read(small_pieces):
    events = [{"name": "a"}, {"name": "b" * 400}, {"name": "c" * 250}, {"name": "d"}, {"name": "e" * 90}]
    assert names_of(json.dumps(events).encode())[0] == [event["name"] for event in events]


def test_a_list_of_anything_is_cut(small_pieces):
    assert names_of(json.dumps([1] * 700 + ["a,b" * 99, {"name": "k"}]).encode()) == (["k"], 701)


@pytest.mark.parametrize("events", [b"[{}" + b",{}" * 1_500_000 + b"]", b"[1" + b",1" * 1_500_000 + b"]"])
def test_a_million_events_of_nothing_are_refused(tmp_path, events):
    path = tmp_path / "trace.json"
    path.write_bytes(events)
    with pytest.raises(TraceError, match="which is too little"):
        Kineto().read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"traceEvents":[' + b" " * 100_000,
        b'{"traceEvents":[{"name":"x',
        b'{"traceEvents":[{"name":"nan"},{"name":"' + b"x" * 100 + b'"},{"x":nul}, {"y":"' + b"x" * 100 + b'"}]}',
    ],
)
def test_what_cannot_be_repaired_is_not_searched_through(tmp_path, monkeypatch, content):
    monkeypatch.setattr(kineto_schema, "repair", lambda _content: pytest.fail("repaired"))
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        Kineto().read(path)


LITERALS = [b"NaN", b"-NaN", b"nan", b"-nan", b"Infinity", b"-inf", b"   +inf", rb'"\ud83d"', rb'"\ude00"']


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("end", [b"", b" " * 100])
def test_what_can_be_repaired_is(tmp_path, start, literal, end):
    path = tmp_path / "trace.json"
    path.write_bytes(start + b'{"traceEvents":[{"name":"a","ts":%b}]%b}' % (literal, end))
    assert Kineto().read(path).accounting.read == 1
