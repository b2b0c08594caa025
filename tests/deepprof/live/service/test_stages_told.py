"""What the stages of training take of the iterations of a running job: from its examination to all that show it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.live.service.examination import ExaminationResult, find_stages
from deepprof.live.service.examiner.examined import LatestExamination
from deepprof.live.service.query import rank_of
from deepprof.live.wire.declarations import build
from deepprof.live.wire.figures import RankState, StageFigures
from deepprof.simulation import simulate, write
from tests.deepprof.live.service.inside import inside
from tests.deepprof.live.service.traces import gpu_only_trace

JOB = "train"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> deepprof.Trace:
    path = tmp_path_factory.mktemp("simulated") / "rank0.json.gz"
    write(simulate("healthy", iterations=12), path)
    return deepprof.read(path)


@pytest.fixture(scope="module")
def loop(trace: deepprof.Trace) -> deepprof.Loop:
    (found,) = deepprof.analyze(trace).loops
    return found


def with_stages(loop: deepprof.Loop, *stages: str, iterations: int = 12, rank: int = 0) -> deepprof.Loop:
    """Return the loop with only these stages and its first iterations."""
    assert loop.anatomy is not None
    rows = loop.anatomy.stages.filter(pl.col("stage").is_in(stages))
    anatomy = replace(loop.anatomy, stages=rows)
    return replace(loop, rank=rank, anatomy=anatomy, iterations=loop.iterations.head(iterations))


def names(stages: Sequence[StageFigures]) -> list[str]:
    return [each.stage for each in stages]


def test_stages_are_those_of_the_analysis(loop: deepprof.Loop) -> None:
    assert loop.anatomy is not None
    known = {row["stage"]: row for row in loop.anatomy.stages.iter_rows(named=True) if row["stage"] != "unknown"}
    found = find_stages([loop])[0]
    assert {"forward", "backward", "optimizer"} <= set(names(found))
    assert names(found) == list(known)
    for each in found:
        row = known[each.stage]
        assert each.device_ns == round(row["mean_busy_ns"]) + round(row["mean_idle_ns"])
        assert (each.host_ns, each.confidence_ratio) == (round(row["mean_host_ns"]), row["confidence"])


def test_an_unknown_stage_is_not_told(loop: deepprof.Loop) -> None:
    assert loop.anatomy is not None
    rows = loop.anatomy.stages.with_columns(stage=pl.lit("unknown", loop.anatomy.stages.schema["stage"]))
    assert find_stages([replace(loop, anatomy=replace(loop.anatomy, stages=rows))]) == {}


def test_what_was_not_looked_for_is_not_told(loop: deepprof.Loop) -> None:
    assert find_stages([replace(loop, anatomy=None)]) == {}
    assert find_stages([replace(loop, iterations=loop.iterations.clear())]) == {}
    assert find_stages([]) == {}


def test_of_several_loops_of_a_rank_the_longest_counts(loop: deepprof.Loop) -> None:
    short, long = with_stages(loop, "forward", iterations=6), with_stages(loop, "backward")
    other = with_stages(loop, "optimizer", iterations=5, rank=3)
    for order in ([short, long, other], [other, long, short]):
        assert {rank: names(stages) for rank, stages in find_stages(order).items()} == {
            0: ["backward"],
            3: ["optimizer"],
        }


def test_a_time_of_the_host_that_is_not_recorded_is_absent(loop: deepprof.Loop) -> None:
    assert loop.anatomy is not None
    rows = loop.anatomy.stages.with_columns(pl.lit(None, pl.Float64).alias("mean_host_ns"))
    found = find_stages([replace(loop, anatomy=replace(loop.anatomy, stages=rows))])[0]
    assert {each.host_ns for each in found} == {None}


STAGES = (StageFigures("data loading", 0, 5), StageFigures("forward", 2, 1, 4, 0.5))


def test_what_is_known_survives_saving() -> None:
    known = LatestExamination()
    known.learn(ExaminationResult("{}", [], [], b"", stages={3: STAGES}), 1)
    again = LatestExamination.decode(known.encode())
    assert again is not None
    assert again.stages == {3: STAGES}


def test_an_examination_saved_without_stages_is_read() -> None:
    known = LatestExamination.decode('{"found":[],"since":[],"loops":[],"report":"{}","unix_ns":5}')
    assert known is not None
    assert (known.unix_ns, known.stages) == (5, {})


def test_a_running_job_tells_its_stages_also_after_a_restart(
    tmp_path: Path, trace: deepprof.Trace, loop: deepprof.Loop
) -> None:
    expected = find_stages([loop])[0]

    async def main() -> None:
        async with inside(tmp_path) as daemon:
            rank = await daemon.send(trace, JOB, end=False)
            assert rank.view.stages == ()
            await daemon.examiner.examine(JOB)
            assert rank.view.stages == expected
            assert build(RankState, rank_of(rank.view)).stages == expected
            await daemon.engine.order(lambda: None)
        async with inside(tmp_path) as daemon:
            again = daemon.engine.roster.find(JOB, 0)
            assert again is not None
            assert again.view.stages == expected

    asyncio.run(main())


def test_records_that_show_no_stage_tell_none(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def main() -> None:
        async with inside(tmp_path) as daemon:
            rank = await daemon.send(gpu_only_trace(iterations=30, kernels=100), JOB, end=False)
            await daemon.examiner.examine(JOB)
            assert daemon.examiner.known[JOB].unix_ns
            assert rank.view.stages == ()
            daemon.examiner.learn(JOB, ExaminationResult("{}", [], [], b"", stages={0: STAGES, 1: ()}), [rank])
            assert rank.view.stages == STAGES
            daemon.examiner.learn(JOB, ExaminationResult("{}", [], [], b""), [rank])
            assert rank.view.stages == ()

    asyncio.run(main())
