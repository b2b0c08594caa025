"""Copies that come again, and what goes there and back: by hand, and against a walk over all copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof.metrics.annotation.trace_annotation import annotate
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory import transfers
from deepprof.metrics.memory.transfers import (
    DIRECTIONS,
    REPEATED_TRANSFERS,
    ROUND_TRIPS,
    find_repeated_transfers,
    find_round_trips,
    read_copies,
    sum_directions,
)
from tests.loops import MS, make_loop
from tests.tables import Row, copy, launch, make_trace

MB = 1 << 20
Copy = tuple[float, int, str]  # when, in ms since the iteration's begin, nbytes, direction


def copies_of(each: Sequence[Copy], iterations: int = 5, only: Sequence[Copy] = ()) -> tuple[Loop, pl.DataFrame]:
    """Return the copies of a loop of 10 ms, whose kernels use 9: `each` in every iteration, `only` in the first."""
    rows: list[Row] = []
    for i in range(iterations):
        for at, nbytes, kind in (*each, *(only if i == 0 else ())):
            start = round((10 * i + at) * MS)
            rows.append(copy(start, start + 1000, nbytes, kind))
    loop = make_loop([10.0] * iterations)
    return loop, read_copies(loop, make_trace(rows, names=["copy"]))


def test_a_copy_that_comes_in_each_iteration_is_found() -> None:
    each = [(0, 8 * MB, "HtoD"), (3, MB, "HtoD"), (4, MB, "HtoD"), (5, 9, "HtoD")]
    loop, copies = copies_of(each, only=[(6, 2 * MB, "HtoD")])
    found = find_repeated_transfers(loop, copies)
    assert found.select("copy_kind", "nbytes", "place", "iterations", "median_ns", "candidate", "doubt").rows() == [
        ("HtoD", 8 * MB, 0, 5, 1000, False, transfers.LARGEST),
        ("HtoD", MB, 0, 5, 1000, False, transfers.NO_LINE),
        ("HtoD", MB, 1, 5, 1000, False, transfers.NO_LINE),
    ]


def test_what_lies_between_iterations_or_stays_on_the_device_is_no_candidate() -> None:
    loop, copies = copies_of([(0, 8 * MB, "HtoD"), (9.5, MB, "HtoD"), (2, MB, "DtoD"), (3, 2 * MB, "DtoH")])
    rows = find_repeated_transfers(loop, copies).select("copy_kind", "nbytes", "doubt").rows()
    found = {(kind, nbytes): doubt for kind, nbytes, doubt in rows}
    assert found[("HtoD", MB)] == transfers.BETWEEN
    assert found[("DtoD", MB)] == transfers.ON_DEVICE
    assert found[("DtoH", 2 * MB)] == transfers.NO_LINE


@pytest.mark.parametrize(("missing", "found"), [(1, 1), (2, 0)])
def test_a_copy_may_be_absent_from_a_tenth_of_the_iterations(missing: int, found: int) -> None:
    loop, copies = copies_of([(1, MB, "HtoD")], iterations=10)
    kept = copies.filter(pl.col("iteration") >= missing)
    assert find_repeated_transfers(loop, kept).height == found


@pytest.mark.parametrize(("lines", "doubt"), [(1, transfers.NOT_SEEN), (2, transfers.MANY_PLACES)])
def test_one_line_that_copies_the_same_in_each_iteration_is_a_candidate(lines: int, doubt: str) -> None:
    """The copy after the batch is requested by an operator, in every second iteration by another one."""
    loop, iterations = make_loop([10.0] * 6), 6
    device: list[Row] = []
    host: list[Row] = []
    for i in range(iterations):
        for k, (at, nbytes) in enumerate(((1, 8 * MB), (2, MB))):
            begin, number = (10 * i + at) * MS, 2 * i + k
            device.append(copy(begin + 100, begin + 200, nbytes, correlation=number))
            operator = 2 + (i % lines if k else 5)
            host.append({**launch(number, begin, begin + 50, operator), "category": "op", "correlation": None})
            host.append(launch(number, begin + 10, begin + 20, 1))
    trace = make_trace(device, host, names=["copy", "cudaMemcpyAsync", *(f"aten::copy{k}" for k in range(6))])
    known = annotate(trace, [loop], build_tree(trace))
    found = find_repeated_transfers(loop, read_copies(loop, trace, known)).filter(nbytes=MB)
    assert found.select("places", "operator", "candidate", "doubt").rows() == [
        (lines, "aten::copy0", lines == 1, doubt)
    ]


def test_there_and_back() -> None:
    """To the host and back once, and twice from the host and back; the last copy has no partner."""
    from_host = [(3.0 + k, 2 * MB, ("HtoD", "DtoH")[k % 2]) for k in range(5)]
    loop, copies = copies_of([(1, MB, "DtoH"), (2, MB, "HtoD"), *from_host])
    assert find_round_trips(loop, copies).rows() == [
        ("HtoD", 2 * MB, 2.0, 5, 4000.0),
        ("DtoH", MB, 1.0, 5, 2000.0),
    ]


COPIES = st.tuples(st.integers(0, 9), st.sampled_from([1, 2]), st.booleans())


@given(st.lists(COPIES, max_size=20, unique_by=lambda each: each[0]))
def test_pairs_are_those_of_a_walk(given_copies: list[tuple[int, int, bool]]) -> None:
    each = [(at * 0.8, size * MB, "HtoD" if up else "DtoH") for at, size, up in given_copies]
    loop, copies = copies_of(each, iterations=1)
    pairs, waiting = Counter[tuple[str, int]](), dict[int, str]()
    for _, size, up in sorted(given_copies):
        kind = "HtoD" if up else "DtoH"
        if waiting.get(size, kind) != kind:
            pairs[waiting.pop(size), size * MB] += 1
        else:
            waiting[size] = kind
    found = {(first, nbytes): count for first, nbytes, count, *_ in find_round_trips(loop, copies).rows()}
    assert found == dict(pairs)


def test_directions_are_means_of_iterations() -> None:
    loop, copies = copies_of([(0, MB, "HtoD"), (1, MB, "HtoD"), (3, 5, "DtoH")], only=[(4, 10, "DtoH")])
    assert sum_directions(loop, copies).rows() == [
        ("HtoD", 2.0, 2.0 * MB, 2000.0),
        ("DtoH", pytest.approx(1.2), 7.0, 1200.0),
    ]


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_few_iterations_and_no_copy(iterations: int) -> None:
    loop, copies = copies_of([(1, MB, "HtoD")], iterations=iterations)
    assert copies.height == iterations
    assert find_repeated_transfers(loop, copies).schema == pl.Schema(REPEATED_TRANSFERS)
    assert find_repeated_transfers(loop, copies).height == 0
    loop, none = copies_of([], iterations=4)
    assert find_round_trips(loop, none).schema == pl.Schema(ROUND_TRIPS)
    assert sum_directions(loop, none).schema == pl.Schema(DIRECTIONS)
    assert find_repeated_transfers(loop, none).height == 0


def test_a_real_trace_names_the_lines(traces) -> None:  # type: ignore[no-untyped-def]
    """ResNet-50: 32 images of 3 × 224 × 224 float32 and their labels; the images are the batch, and largest."""
    [path] = (traces / "tb-resnet50-nw4-d").iterdir()
    analysis = deepprof.analyze(deepprof.read(path))
    [loop] = analysis.loops
    found = find_repeated_transfers(loop, read_copies(loop, analysis.traces[0], analysis.annotated[0]))
    images = found.filter(nbytes=32 * 3 * 224 * 224 * 4, copy_kind="HtoD")
    assert images.height == 1
    assert not images["candidate"][0]
