"""No nanosecond in two findings, no large part without a word, in drawn mixtures; `test_real_traces.py` has others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.analysis import Analysis, analyze
from deepprof.diagnosis.causes import burden, rank
from deepprof.diagnosis.coverage import find_unnamed, part_limits
from deepprof.diagnosis.engine import diagnose_loop
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.ledger import settle
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Loop
from tests.chance import examples
from tests.deepprof.diagnosis.books import check_books, mean_parts
from tests.loops import MS, make_loop
from tests.tables import make_trace


def diagnosed(loop: Loop) -> tuple[Finding, ...]:
    return settle(rank(diagnose_loop(loop, make_trace())), [loop])


def analysis_of(loop: Loop) -> Analysis:
    """Return an analysis that contains nothing but the loop and what is found in it."""
    analysis = analyze(make_trace())
    return replace(analysis, loops=(loop,), findings=diagnosed(loop))


@st.composite
def mixtures(draw: st.DrawFn) -> Loop:
    """Draw iterations whose parts are steady, rare, in bursts, growing or in one iteration alone, several at once."""
    count = draw(st.integers(1, 30))
    columns = {}
    for part in draw(st.lists(st.sampled_from([p for p in PART_NAMES if p != "compute_ns"]), max_size=4, unique=True)):
        size = draw(st.floats(0.5, 200))
        how = draw(st.sampled_from(["steady", "alternate", "burst", "growing", "once"]))
        shape = {
            "steady": [1.0] * count,
            "alternate": [float(i % 2) for i in range(count)],
            "burst": [float(i % 7 < 2) for i in range(count)],
            "growing": [(i + 1) / count for i in range(count)],
            "once": [float(i == count // 2) for i in range(count)],
        }[how]
        columns[part] = [size * factor for factor in shape]
    compute = draw(st.floats(1, 300))
    times = [compute + sum(values[i] for values in columns.values()) for i in range(count)]
    return make_loop(times, launches=20, **columns)


@settings(max_examples=examples(150))
@given(mixtures())
def test_every_mixture_keeps_the_books(loop: Loop) -> None:
    check_books(analysis_of(loop))


@settings(max_examples=examples(60))
@given(mixtures())
def test_the_headline_is_the_largest_avoidable_loss(loop: Loop) -> None:
    told = [f for f in rank(diagnose_loop(loop, make_trace())) if f.severity != "info" and f.caused_by is None]
    losses = [burden(f) for f in told]
    assert losses == sorted(losses, reverse=True)


def test_two_claims_on_one_part_are_cut_to_what_there_is() -> None:
    loop = make_loop([100] * 8, compute_ns=60, idle_input_ns=40)
    first = Finding(
        rule="a",
        severity="warning",
        title="",
        summary="",
        evidence={},
        advice="",
        confidence=1.0,
        headroom_ns_per_iteration=30 * MS,
        rank=0,
        device=0,
        stream=7,
        parts={"idle_input_ns": 30 * MS},
    )
    one, two = settle([first, first], [loop])
    assert (one.headroom_ns_per_iteration, two.headroom_ns_per_iteration) == (30 * MS, 10 * MS)
    assert two.parts == {"idle_input_ns": 10 * MS}


def test_a_loss_of_the_whole_job_is_taken_out_of_every_rank() -> None:
    loop = make_loop([100] * 8, compute_ns=60, exposed_communication_ns=40)
    job = Finding(
        rule="straggler",
        severity="warning",
        title="",
        summary="",
        evidence={},
        advice="",
        confidence=1.0,
        headroom_ns_per_iteration=35 * MS,
        rank=3,
        parts={"exposed_communication_ns": 35 * MS},
    )
    (_, own) = settle([job, *diagnose_loop(loop, make_trace())][:2], [loop])
    assert own.rule == "communication-bound"
    assert own.headroom_ns_per_iteration == 5 * MS


def test_a_part_in_one_iteration_alone_has_a_sentence() -> None:
    loop = make_loop([100] * 19 + [290], compute_ns=100, idle_allocator_ns=[0] * 19 + [190])
    (left,) = find_unnamed([loop], diagnosed(loop))
    assert (left.part, "one iteration" in left.why) == ("idle_allocator_ns", True)
    assert left.share == pytest.approx(190 / 2190)


def test_every_limit_is_of_a_part() -> None:
    assert set(part_limits()) == set(PART_NAMES) - {"compute_ns"}
    assert mean_parts(make_loop([100] * 3, compute_ns=100))["compute_ns"] == 100 * MS


def test_two_loops_on_one_stream_have_accounts_of_their_own() -> None:
    """A finding takes from the loop that it is about, which its evidence names by the iteration's time."""
    long, short = make_loop([100] * 8, compute_ns=100), make_loop([40] * 8, compute_ns=40)
    claims = [claim_compute(loop, 30) for loop in (long, short, long)]
    settled = settle(claims, [long, short])
    assert [each.headroom_ns_per_iteration for each in settled] == [30 * MS, 30 * MS, 30 * MS]
    assert settle([*claims, claim_compute(short, 30)], [long, short])[-1].headroom_ns_per_iteration == 10 * MS


def claim_compute(loop: Loop, ms: int) -> Finding:
    """Return a finding on this much of a loop's computing time."""
    return Finding(
        rule="a",
        severity="warning",
        title="",
        summary="",
        evidence={"iteration_ns": round(float(loop.usual["iteration_ns"].sum()) / loop.usual.height)},
        advice="",
        confidence=1.0,
        headroom_ns_per_iteration=ms * MS,
        **loop.place,
        parts={"compute_ns": ms * MS},
    )
