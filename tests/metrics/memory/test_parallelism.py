"""How ranks share the work: by tables made by hand, and by real ranks that train one MLP in three ways."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.importers import read
from deepprof.collectors.trace import COLLECTIVES, Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.parallelism import PARALLEL_RANKS, ParallelKind, find_parallel_kind
from tests.loops import MS, make_loop
from tests.metrics.memory.test_exchanges import ALL_REDUCE, BACKWARD, GRADIENT, NAMES, UPDATE, op
from tests.metrics.memory.test_floors import mark, with_memory
from tests.once import make_once
from tests.patience import PATIENCE_S
from tests.tables import Row, event, launch, make_trace, span, table

RANKS, ITERATIONS = 2, 6
# When in an iteration of 10 ms, in ms, the host requests something: in the forward pass, in the backward pass, where a
# gradient has been added up, and before the step of the optimizer.
FORWARD_MS, BACKWARD_MS, GRADIENT_MS, UPDATE_MS = 1, 4.5, 6, 8.5


def make_rank(
    rank: int, asked: Mapping[float, str], peak: int | None = 1000, elements: Mapping[float, int] | None = None
) -> tuple[Loop, Trace]:
    """Return a rank with what it requests in every iteration, and the peak of its memory (None: not recorded)."""
    device: list[Row] = []
    host: list[Row] = []
    ranges: list[Row] = []
    said: list[tuple[str, int | None]] = []
    for i in range(ITERATIONS + 1):
        begin = 10 * MS * i
        host += [op(BACKWARD, begin + 4 * MS, begin + 5 * MS), op(GRADIENT, begin + 5 * MS, begin + 7 * MS)]
        ranges.append(span(UPDATE, begin + 9 * MS, begin + 10 * MS - 10))
        for at, what in asked.items():
            start = begin + round(at * MS)
            device.append(event(ALL_REDUCE, start + 5, start + 10, stream=24, correlation=len(device)))
            host.append(launch(len(device) - 1, start, start + 1))
            said.append((what, (elements or {}).get(at)))
    trace = make_trace(device, host, ranges, names=NAMES, rank=rank)
    rows: list[Row] = [
        {"event": k, "collective": what, "in_elements": count, "out_elements": count}
        for k, (what, count) in enumerate(said)
    ]
    trace = replace(trace, collectives=table(rows, COLLECTIVES))
    if peak is not None:
        marks = [mark(-1, 400, 400)]
        for i in range(ITERATIONS + 1):
            marks += [mark(10 * i + 3, peak - 400, peak), mark(10 * i + 7, 400 - peak, 400)]
        trace = with_memory(trace, marks)
    return replace(make_loop([10.0] * ITERATIONS), rank=rank), trace


def tell(*ranks: tuple[Loop, Trace], reference: int | None = None) -> ParallelKind:
    return find_parallel_kind([loop for loop, _ in ranks], [trace for _, trace in ranks], reference)


def tell_alike(asked: Mapping[float, str], **more: object) -> ParallelKind:
    return tell(*(make_rank(rank, asked, **more) for rank in range(RANKS)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({GRADIENT_MS: "allreduce"}, "data"),
        ({BACKWARD_MS: "allreduce"}, "data"),
        ({UPDATE_MS: "allreduce"}, "data"),
        ({GRADIENT_MS: "_reduce_scatter_base"}, "data"),
        ({FORWARD_MS: "_allgather_base", BACKWARD_MS: "_reduce_scatter_base"}, "sharded data"),
        ({FORWARD_MS: "allreduce", BACKWARD_MS: "allreduce"}, "tensor"),
        ({FORWARD_MS: "_reduce_scatter_base", 2: "_allgather_base", BACKWARD_MS: "_reduce_scatter_base"}, "tensor"),
        ({FORWARD_MS: "allreduce", BACKWARD_MS: "allreduce", GRADIENT_MS: "allreduce"}, "data + tensor"),
    ],
)
def test_what_ranks_exchange_tells_how_they_share_the_work(asked: Mapping[float, str], kind: str) -> None:
    found = tell_alike(asked)
    assert (found.kind, found.confidence) == (kind, 1.0)
    assert "their memory is equal (smallest peak 100% of the largest)" in found.reason


def test_a_pipeline_has_unequal_memory() -> None:
    sends, receives = {FORWARD_MS: "send", BACKWARD_MS: "recv"}, {FORWARD_MS: "recv", BACKWARD_MS: "send"}
    found = tell(make_rank(0, sends, 1000), make_rank(1, receives, 1800))
    assert (found.kind, found.confidence) == ("pipeline", 1.0)
    even = tell(make_rank(0, sends), make_rank(1, receives))
    assert (even.kind, even.confidence) == ("pipeline", 0.6)
    assert "which is unusual" in even.reason


@pytest.mark.parametrize("asked", [{FORWARD_MS: "allreduce"}, {GRADIENT_MS: "allreduce"}])
def test_memory_that_does_not_agree_makes_the_verdict_less_certain(asked: Mapping[float, str]) -> None:
    assert tell(make_rank(0, asked, 1000), make_rank(1, asked, 1800)).confidence == 0.6
    unknown = tell_alike(asked, peak=None)
    assert (unknown.confidence, "not recorded on all ranks" in unknown.reason) == (0.8, True)


def test_small_exchanges_are_no_sign_where_sizes_are_known() -> None:
    """Statistics of batch normalisation are reduced in the forward pass of a data-parallel job, too."""
    asked = {FORWARD_MS: "allreduce", GRADIENT_MS: "allreduce"}
    assert tell_alike(asked, elements={FORWARD_MS: 9, GRADIENT_MS: 1000}).kind == "data"
    assert tell_alike(asked, elements={FORWARD_MS: 10, GRADIENT_MS: 1000}).kind == "data + tensor"


def test_not_told_without_signs() -> None:
    nothing = tell_alike({})
    assert (nothing.kind, nothing.confidence) == (None, 0.0)
    assert nothing.reason.startswith("no exchange is recorded; their memory is equal")
    assert "data and tensor parallelism both" in nothing.reason
    other = tell_alike({FORWARD_MS: "barrier"}, peak=None)
    assert (other.kind, other.reason.startswith("what they exchange shows none")) == (None, True)
    one_sided = tell(make_rank(0, {GRADIENT_MS: "allreduce"}), make_rank(1, {}))
    assert one_sided.kind is None


def test_one_rank_and_none() -> None:
    alone = tell(make_rank(0, {GRADIENT_MS: "allreduce"}), reference=2000)
    assert (alone.kind, alone.reason) == (None, "one rank: at least two are compared")
    assert alone.ranks["of_reference_ratio"].to_list() == [0.5]
    none = find_parallel_kind([], [])
    assert (none.kind, none.ranks.schema == PARALLEL_RANKS, none.ranks.height) == (None, True, 0)
    loopless = find_parallel_kind([], [make_trace(rank=0), make_trace(rank=1)])
    assert loopless.reason == "0 of 2 ranks with a loop: at least two are compared"


def train(kind: str, folder: Path) -> None:
    """Run both ranks of a program, and let it fail where one does."""
    command = [sys.executable, "-m", "tests.programs.parallel_ranks", kind]
    root = Path(__file__).resolve().parents[3]
    ranks = [
        subprocess.Popen([*command, str(rank), str(folder)], cwd=root, stderr=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    try:
        ends = [process.communicate(timeout=PATIENCE_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0] * RANKS, ends


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ParallelKind]:
    """How the ranks of every program share the work; the peak of data-parallel ones is the reference."""
    if find_spec("torch") is None:
        pytest.skip("needs torch")
    kinds = ("data", "tensor", "pipeline")
    folder = make_once(tmp_path_factory, "parallel-ranks", lambda path: [train(kind, path) for kind in kinds])
    found = {kind: read_ranks([folder / f"{kind}-{rank}.json" for rank in range(RANKS)]) for kind in kinds}
    reference = int(found["data"][2].ranks["peak_nbytes"][0])
    return {kind: find_parallel_kind(*job[:2], reference) for kind, job in found.items()}


def read_ranks(paths: Sequence[Path]) -> tuple[Sequence[Loop], Sequence[Trace], ParallelKind]:
    analysis = deepprof.analyze([read(path) for path in paths])
    return analysis.loops, analysis.traces, find_parallel_kind(analysis.loops, analysis.traces)


@pytest.mark.parametrize("kind", ["data", "tensor", "pipeline"])
def test_real_ranks_are_told_apart(kind: str, jobs: Mapping[str, ParallelKind]) -> None:
    assert jobs[kind].kind == kind, jobs[kind]
    assert jobs[kind].confidence == 1.0


def test_real_ranks_have_the_shapes_of_the_paper(jobs: Mapping[str, ParallelKind]) -> None:
    """Data-parallel ranks are equal, tensor-parallel ones too at about half, stages of a pipeline are not."""
    peaks = {kind: found.ranks["of_reference_ratio"].to_list() for kind, found in jobs.items()}
    assert peaks["data"] == pytest.approx([1.0, 1.0], rel=0.01)
    assert peaks["tensor"] == pytest.approx([0.5, 0.5], rel=0.15)
    assert peaks["tensor"][0] == pytest.approx(peaks["tensor"][1], rel=0.05)
    assert peaks["pipeline"][1] > 1.5 * peaks["pipeline"][0]
    assert all(found.ranks["exchanges"].min() > 0 for found in jobs.values())  # type: ignore[operator]
