"""Ranks side by side: what each needed and how long it waited, in every iteration."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.analysis import Analysis
from deepprof.metrics.ranks.comparison import compare_ranks
from deepprof.web.documents import ranks as module
from deepprof.web.documents.ranks import write_ranks
from tests.deepprof.builders import build_analysis
from tests.deepprof.web.documents.columns import again
from tests.rank_jobs import RankJob, facts_of


def job_of(ranks: int = 3, iterations: int = 6, **more: object) -> RankJob:
    """Return a job whose last rank computes longer than the others."""
    compute = np.full((ranks, iterations, 1), 1_000)
    compute[-1] += 500
    return RankJob(compute_ns=compute, **more)  # type: ignore[arg-type]


def analysis_of(job: RankJob) -> Analysis:
    loops, traces = job.build()
    comparison = compare_ranks(loops, facts_of(loops, traces))
    return build_analysis(loops=tuple(loops), traces=tuple(traces), ranks=comparison, findings=())


def test_the_slow_rank_is_first_and_the_others_wait_for_it() -> None:
    document = again(write_ranks(analysis_of(job_of())))
    assert [row.title for row in document.rows] == [f"rank {rank}, device 0" for rank in (2, 0, 1)]
    assert [row.loop for row in document.rows] == [2, 0, 1]
    assert document.matched
    assert document.missing == ""
    assert document.index == [0, 1, 2, 3, 4, 5]
    assert document.own_ns == [[1_500] * 5 + [None], [1_000] * 5 + [None], [1_000] * 5 + [None]]
    assert document.waiting_ns == [[0] * 6, [500] * 6, [500] * 6]


def test_medians_are_those_of_the_table_and_of_the_cells() -> None:
    analysis = analysis_of(job_of())
    document = write_ranks(analysis)
    assert analysis.ranks is not None
    assert [row.own_ns for row in document.rows] == analysis.ranks.ranks["own_ns"].to_list()
    for row, own, waiting in zip(document.rows, document.own_ns, document.waiting_ns, strict=True):
        assert np.median([value for value in own if value is not None]) == row.own_ns
        assert np.median([value for value in waiting if value is not None]) == row.waiting_ns


def test_columns_are_the_same_moment_though_a_capture_begins_later() -> None:
    compute = np.full((2, 8, 1), 1_000)
    compute[0] += 100 * np.arange(8)[:, None] ** 2
    compute[1] += 13 * np.arange(8)[:, None]
    document = write_ranks(analysis_of(RankJob(compute_ns=compute, skipped=(0, 2), sequences=True)))
    rows = {row.rank: own for row, own in zip(document.rows, document.own_ns, strict=True)}
    assert document.matched
    assert rows[0] == [1_000 + 100 * i**2 for i in range(7)] + [None]
    assert rows[1] == [None, None, *(1_000 + 13 * i for i in range(2, 7)), None]


def test_the_latest_iterations_and_the_worst_ranks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COLUMNS", 2)
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    document = write_ranks(analysis_of(job_of()))
    assert (document.index, document.left_out, document.left_out_rows) == ([4, 5], 4, 2)
    assert [row.rank for row in document.rows] == [2]
    assert (document.own_ns, document.waiting_ns) == ([[1_500, None]], [[0, 0]])


def test_missing_ranks_are_named() -> None:
    document = write_ranks(analysis_of(job_of(ranks=4, present=(0, 3), world_size=4)))
    assert document.missing == "1-2 of 4"


def test_ranks_without_collectives_have_their_times_but_no_waits() -> None:
    analysis = analysis_of(job_of(ranks=2, names=("plain",)))
    document = write_ranks(analysis)
    assert {row.waiting_ns for row in document.rows} == {None}
    assert all(value is None for row in document.waiting_ns for value in row)


def test_a_rank_without_a_loop_is_a_row_without_cells() -> None:
    analysis = analysis_of(job_of())
    assert analysis.ranks is not None
    bare = analysis.ranks.ranks.with_columns(
        pl.when(pl.col("rank") == 1).then(None).otherwise(pl.col("device")).alias("device"),
    )
    document = write_ranks(replace(analysis, ranks=replace(analysis.ranks, ranks=bare)))
    (row,) = (row for row in document.rows if row.rank == 1)
    assert (row.title, row.loop, row.device) == ("rank 1", None, None)
    assert document.own_ns[document.rows.index(row)] == [None] * len(document.index)


def test_one_rank_is_not_compared() -> None:
    document = write_ranks(build_analysis())
    assert (document.rows, document.index, document.own_ns) == ([], [], [])
