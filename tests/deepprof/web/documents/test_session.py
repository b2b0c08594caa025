"""What is around all views."""

from __future__ import annotations

import deepprof
from deepprof.web.documents.session import write_session
from tests.deepprof.builders import build_analysis, build_loop, build_trace
from tests.deepprof.render.reports import read_simulated
from tests.deepprof.web.documents.columns import again


def test_the_answer_is_that_of_the_report() -> None:
    growing = deepprof.analyze(read_simulated("graph-growth", iterations=14))
    session = again(write_session(growing, []))
    assert session.answer.lines[0].startswith("A training loop of ")
    assert session.answer.severity == growing.findings[0].severity
    assert session.answer.finding == 0
    assert session.title == growing.recordings[0].path
    (loop,) = session.loops
    assert loop.iterations == growing.loops[0].iterations.height
    assert loop.typical is not None
    assert sum(b - a + 1 for a, b in zip(loop.strip.first, loop.strip.last, strict=True)) == loop.iterations


def test_a_trace_without_a_loop_has_an_answer() -> None:
    session = again(write_session(build_analysis(loops=(), no_loop_reason="too short"), []))
    assert session.loops == []
    assert session.answer.lines


def test_notes_say_which_streams_have_no_loop_and_stand_once() -> None:
    trace = build_trace(notes=("a note", "a note"))
    session = write_session(build_analysis(traces=(trace,), missing=("no iteration on stream 9",)), [])
    assert session.notes == ["a note", "no iteration on stream 9"]


def test_a_loop_without_whole_iterations_is_one() -> None:
    session = again(write_session(build_analysis(loops=(build_loop([1_000_000]),)), []))
    assert session.loops[0].mean_ns is None
