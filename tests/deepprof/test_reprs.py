"""What a researcher prints in a notebook is one short line, whatever the object contains."""

from __future__ import annotations

import doctest
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof import simulation
from deepprof.analysis import Analysis
from deepprof.collectors import reprs
from deepprof.collectors.reprs import LONGEST_REPR, one_line, shorten_path
from deepprof.diagnosis.finding import Finding
from tests.tables import event, make_trace


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Return the analysis of four ranks, one of which is late."""
    folder = tmp_path_factory.mktemp("job")
    simulation.write_ranks(simulation.simulate_ranks("straggler"), folder)
    return deepprof.analyze(deepprof.read_job(folder))


def printed(job: Analysis) -> list[object]:
    """Return what a researcher would print of a job."""
    tops = [loop.top for loop in job.loops]
    compared = deepprof.compare(job, job)
    others = [job.ranks, *(job.ranks.groups if job.ranks else ()), job.headline, compared, *compared.pairs]
    return [job, *others, *job.traces, *job.recordings, *job.loops, *job.findings, *job.timelines.values(), *tops]


def test_each_is_one_short_line_that_names_its_kind(job: Analysis) -> None:
    shown = printed(job)
    assert len(shown) > 20
    for each in shown:
        assert repr(each) == str(each)
        assert len(repr(each)) <= LONGEST_REPR == 120
        assert repr(each).isprintable()
        assert repr(each).startswith(type(each).__name__ + "(")


def test_they_say_what_is_in_it(job: Analysis) -> None:
    assert repr(job) == f"Analysis(4 ranks, 4 loops, {len(job.findings)} findings, headline straggler)"
    assert repr(job.ranks) == "RankComparison(4 ranks, 1 program)"
    (trace, *_), (loop, *_) = job.traces, job.loops
    counts = f"{trace.device_events.height:,} device events, {trace.host_events.height:,} host events"
    assert repr(trace).endswith(f"rank0.json.gz', kineto, rank 0, {counts})")
    repeated = f"{loop.iterations.height} iterations of {loop.period} kernels"
    assert repr(loop).startswith(f"Loop(rank 0, device 0, stream 7, {repeated}, median ")
    headroom_ms = (job.findings[0].headroom_ns_per_iteration or 0) / 1e6
    assert f"up to {headroom_ms:.3g} ms per iteration" in repr(job.findings[0])


def test_a_store_and_its_ranks(tmp_path: Path, job: Analysis) -> None:
    from deepprof.job.conversion import convert

    convert([trace.path for trace in job.traces], tmp_path / "job.deepprof")
    store = deepprof.open_store(tmp_path / "job.deepprof")
    assert repr(store).endswith("job.deepprof', 4 ranks)")
    for each in (store, *store.ranks.values()):
        assert len(repr(each)) <= LONGEST_REPR


def test_what_is_empty_is_short_too() -> None:
    nothing = make_trace()
    assert repr(nothing) == "Trace('made by hand', test, 0 device events, 0 host events)"
    assert repr(deepprof.analyze(nothing)) == "Analysis(1 rank, 0 loops, 0 findings)"
    (single,) = deepprof.analyze(make_trace([event(0, 0, 1)])).traces
    assert repr(single) == "Trace('made by hand', test, 1 device event, 0 host events)"


@given(st.text(), st.text(), st.integers(0, 2**63))
def test_no_text_makes_it_longer_or_two_lines(path: str, text: str, number: int) -> None:
    trace = replace(make_trace(), path=path, format=text, names=pl.Series([text]))
    finding = Finding(
        rule=text,
        severity="info",
        title=path * 9,
        summary="",
        evidence={},
        advice="",
        confidence=1,
        headroom_ns_per_iteration=number,
    )
    for each in (trace, finding):
        assert len(repr(each)) <= LONGEST_REPR
        assert repr(each).isprintable()


def test_a_long_path_shows_its_end() -> None:
    assert shorten_path("a" * 40) == f"'{'a' * 40}'"
    assert shorten_path("b" * 40 + "rank0.json") == f"'…{'b' * 29}rank0.json'"
    assert one_line(Path(), "", "x") == f"{type(Path()).__name__}(x)"


def test_the_examples_of_its_docstrings_hold() -> None:
    assert doctest.testmod(reprs, raise_on_error=True).attempted == 1
