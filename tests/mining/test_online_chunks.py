"""Any chunking gives the same, to the byte of the saved state; so does saving and restoring anywhere."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, native
from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import IterationBatch
from tests.chance import examples
from tests.mining.jobs import Job
from tests.mining.online_runs import one_after_the_other, rows

WINDOW = 1 << 11


@dataclass
class Case:
    """A stream with gaps before the symbols at some positions, and what is available along it."""

    stream: npt.NDArray[np.int64]
    gaps: list[int]
    evidence: Evidence | None

    def part(self, first: int, end: int) -> Evidence | None:
        """Return the evidence of one chunk."""
        if self.evidence is None:
            return None
        inside = [(f.positions >= first) & (f.positions < end) for f in self.evidence.families]
        families = [
            replace(f, positions=f.positions[which] - first, ends=None if f.ends is None else f.ends[which] - first)
            for f, which in zip(self.evidence.families, inside, strict=True)
        ]
        return replace(self.evidence.between(first, end), families=tuple(families))


jobs = st.builds(
    Job,
    iterations=st.integers(15, 50),
    layers=st.integers(3, 8),
    forward=st.integers(4, 10),
    backward=st.integers(6, 14),
    optimizer=st.integers(8, 30),
    prologue=st.integers(0, 300),
    p_insert=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    p_delete=st.sampled_from([0.0, 0.1, 0.3]),
    p_substitute=st.sampled_from([0.0, 0.0, 0.01]),
    eval_every=st.sampled_from([0, 0, 7]),
    growth=st.sampled_from([0, 0, 1, 3]),
    seed=st.integers(0, 10**6),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    first, second = draw(jobs), draw(jobs)
    third = replace(first, starts=[])
    stream, starts = one_after_the_other(first, second, third, apart=(0, draw(st.sampled_from([0, 100, 70_000]))))
    gaps = draw(st.lists(st.integers(0, len(stream)), max_size=4, unique=True))
    return Case(stream, sorted(gaps), draw(evidences(len(stream), np.concatenate(starts).astype(np.int64))))


@st.composite
def evidences(draw: st.DrawFn, length: int, starts: npt.NDArray[np.int64]) -> Evidence | None:
    if draw(st.booleans()):
        return None
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    gaps, copies = random.random(length), np.zeros(length, np.bool_)
    gaps[starts[starts < length]] = 50.0
    copies[starts[starts < length]] = True
    family = Family("step", draw(st.sampled_from(["step", "loop", "range"])), starts, 0.9, starts + 30)
    return Evidence(
        gaps=gaps if draw(st.booleans()) else None,
        copies=copies if draw(st.booleans()) else None,
        optimizer=random.random(90) < 0.1 if draw(st.booleans()) else None,
        families=(family,) if draw(st.booleans()) else (),
        start=draw(st.integers(0, 50)),
        length=length,
    )


def outcome(case: Case, cuts: Sequence[int], restored_at: Sequence[int] = ()) -> dict[str, Any]:
    """Everything a miner states about a case cut at these places, and its state before and after the end."""
    miner, given = OnlineMiner(WINDOW), []
    edges = sorted([0, *case.gaps, *(cut % (len(case.stream) + 1) for cut in (*cuts, *restored_at)), len(case.stream)])
    told: set[int] = set()
    for first, end in pairwise(edges):
        if first in case.gaps and first not in told:
            told.add(first)
            given.append(miner.gap())
        given.append(miner.feed(case.stream[first:end], case.part(first, end)))
        if end in [at % (len(case.stream) + 1) for at in restored_at]:
            miner = OnlineMiner.restore(miner.save())
    before = miner.save()
    given.append(miner.finish())
    said = {
        "rows": rows(IterationBatch.join(given)),
        "events": miner.events,
        "counts": miner.counts,
        "state": miner.state,
    }
    return {**said, "saved": before, "saved at the end": miner.save()}


cuts = st.lists(st.integers(0, 10**6), max_size=25)


@settings(max_examples=examples(25), deadline=None)
@given(cases(), cuts, cuts)
def test_any_chunking_gives_the_same(case: Case, one: list[int], other: list[int]) -> None:
    assert outcome(case, one) == outcome(case, [*other, *other])


@settings(max_examples=examples(15), deadline=None)
@given(cases(), cuts, st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_a_restored_miner_goes_on_as_if_nothing_had_happened(case: Case, one: list[int], at: list[int]) -> None:
    assert outcome(case, one, restored_at=at) == outcome(case, one)


@settings(max_examples=examples(4), deadline=None)
@given(cases())
def test_one_symbol_at_a_time(case: Case) -> None:
    short = Case(case.stream[:3500], [gap for gap in case.gaps if gap < 3500], None)
    assert outcome(short, range(3500)) == outcome(short, [])


def test_restored_in_every_state() -> None:
    first, second = Job(iterations=30, seed=1, layers=5), Job(iterations=60, seed=2, layers=4)
    noise = np.random.default_rng(3).integers(300, 500, 4000)
    stream = np.concatenate([first.symbols(), noise, second.symbols() + 100])
    places = list(range(0, len(stream), 500))
    miner, states = OnlineMiner(WINDOW), set()
    for first_symbol in places:
        miner.feed(stream[first_symbol : first_symbol + 500])
        states.add(miner.state)
    assert states == {"learning", "locked", "lost"}
    case = Case(stream, [], None)
    assert outcome(case, places, restored_at=places) == outcome(case, places)


def test_c_and_numpy_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("no C library was built here; the numpy fallback is all there is")
    stream, _ = one_after_the_other(
        Job(iterations=25, p_insert=0.3), Job(iterations=25, layers=6, seed=3), apart=(0, 100)
    )
    case, places = Case(stream, [4000], None), range(0, len(stream), 700)
    with_c = outcome(case, places)
    monkeypatch.setattr(native, "library", lambda: None)
    assert outcome(case, places, restored_at=[7000]) == with_c
    assert len(with_c["rows"]) >= 45


def test_chunks_may_be_larger_than_what_is_kept() -> None:
    job = Job(iterations=200, layers=5)
    case = Case(job.symbols(), [], None)
    assert len(case.stream) > 8 * WINDOW
    assert outcome(case, []) == outcome(case, range(0, len(case.stream), 100))


def held_nbytes() -> int:
    """Return what the miner has allocated and not freed; other threads of this process allocate too, elsewhere."""
    own = tracemalloc.Filter(inclusive=True, filename_pattern="*/deepprof/mining/*")
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([own]).traces)


def test_memory_does_not_depend_on_the_length_of_the_stream() -> None:
    one = Job(iterations=1, prologue=0).symbols().astype(np.uint16)
    chunk = np.tile(one, 100)
    miner = OnlineMiner(1 << 12)
    tracemalloc.start()
    sizes, held = [], []
    for part in range(126):
        if part in (10, 125):
            sizes.append(len(miner.save()))
            held.append(held_nbytes())
        miner.feed(chunk)
    tracemalloc.stop()
    assert miner.position >= 5_000_000
    assert sizes[1] <= sizes[0] + 200
    assert 0 < held[1] <= held[0] + 20_000
    assert miner.counts.iterations >= 12_590


def test_memory_is_bounded_whatever_comes() -> None:
    random = np.random.default_rng(0)
    template = random.integers(0, 50, 300)
    miner, sizes = OnlineMiner(WINDOW), []
    for part in range(60):
        noise = random.integers(0, 50, 2000)
        damaged = np.concatenate([np.delete(template, random.integers(0, 300, 9)) for _ in range(7)])
        for piece in (noise, damaged, np.tile(template[: 100 + 10 * part], 9)):
            miner.feed(piece, Evidence(families=(Family(f"range {part}", "range", np.arange(len(piece)), 0.5),)))
            sizes.append(len(miner.save()))
    assert len(miner.events) <= 256
    assert max(sizes) < 4 * WINDOW + 64 * 16 * 2 * WINDOW + 200_000
