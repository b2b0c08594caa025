"""The table of ranks in text and in JSON."""

from __future__ import annotations

import io
import json
from functools import cache

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from deepprof.metrics.ranks.comparison import GROUP_SKEWS, GROUP_WAITS, RankComparison, RankGroup, compare_ranks
from deepprof.metrics.ranks.ranks_table import RANKS
from deepprof.render.json import encode
from deepprof.render.page import TextPage
from deepprof.render.ranks import describe_ranks, list_missing, print_ranks
from tests.deepprof.builders import build_analysis
from tests.rank_jobs import RankJob, facts_of


def slow_job(ranks: int = 3, **more: object) -> RankComparison:
    """The last rank computes 1.5 times as long as each of the others."""
    compute = np.full((ranks, 6, 1), 2_000_000)
    compute[-1] = 3_000_000
    loops, traces = RankJob(compute_ns=compute, transfer_ns=(500_000,), **more).build()  # type: ignore[arg-type]
    found = compare_ranks(loops, facts_of(loops, traces))
    assert found is not None
    return found


@cache
def large_job() -> RankComparison:
    """Twelve of 4096 ranks, the same on every page."""
    return slow_job(12, world_size=4096)


def draw(ranks: RankComparison | None, width: int = 100, encoding: str = "utf-8") -> list[str]:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    print_ranks(build_analysis(ranks=ranks), TextPage(Console(file=buffer, width=width)))
    buffer.seek(0)
    return buffer.read().splitlines()


def test_a_row_per_rank_the_worst_first() -> None:
    assert draw(slow_job()) == [
        "",
        "Ranks",
        "  rank   iteration   computes     waits   own time   to others",
        "     2     3.50 ms    3.00 ms      0 ns    3.00 ms       1.50x",
        "     0     3.50 ms    2.00 ms   1.00 ms    2.00 ms       0.80x",
        "     1     3.50 ms    2.00 ms   1.00 ms    2.00 ms       0.80x",
        "  furthest apart at collective 1 of 1 (AllReduce): 1.00 ms, rank 2 comes last",
    ]


def test_every_collective_has_its_skew_in_json() -> None:
    (row,) = json.loads(encode(build_analysis(ranks=slow_job())))["collectives"]
    assert row == {
        "group": 0,
        "position": 0,
        "name": "AllReduce",
        "skew_ns": 1_000_000,
        "latest_rank": 2,
        "latest_device": 0,
    }
    assert json.loads(encode(build_analysis()))["collectives"] == []


def test_a_single_rank_has_no_table() -> None:
    assert draw(None) == []
    assert describe_ranks(build_analysis()) == []
    assert list_missing(build_analysis()) is None


@pytest.mark.parametrize("width", [30, 40, 55, 200])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_every_page_is_wide_enough(width: int, encoding: str) -> None:
    lines = draw(large_job(), width, encoding)
    assert max(map(len, lines)) <= width
    assert "and 4 more" in " ".join(lines)
    assert [line.split()[0] for line in lines[3:11]] == ["11", *map(str, range(7))]
    assert "no trace of rank 12-4095 of 4096" in " ".join(line.strip() for line in lines)


def test_devices_are_named_where_there_are_several() -> None:
    rows = [{"rank": 0, "device": k, "group": k, "iterations": 5, "compute_ns": 7, "iteration_ns": 9} for k in (1, 0)]
    groups = tuple(RankGroup(((0, k),), None, None, pl.DataFrame(schema=GROUP_WAITS)) for k in (0, 1))
    ranks = pl.DataFrame([{name: row.get(name) for name in RANKS} for row in rows], schema=RANKS)
    lines = draw(RankComparison(ranks, pl.DataFrame(schema=GROUP_SKEWS), groups, None, None))
    assert lines[2].split() == ["rank", "device", "iteration", "computes", "waits", "own", "time", "to", "others"]
    assert lines[3].split() == ["0", "1", "9", "ns", "7", "ns", "-", "-", "-"]
    assert lines[5] == "  2 programs run here; only ranks of one are compared"
    assert lines[6] == "  no collective that ranks share was recorded: who waits for whom is not known"


def test_json_has_every_rank_and_the_missing_ones() -> None:
    report = json.loads(encode(build_analysis(ranks=slow_job(3, present=(0, 2), world_size=5))))
    assert report["missing_ranks"] == [1, 3, 4]
    assert [block["rank"] for block in report["ranks"]] == [2, 0]
    assert report["ranks"][0] == {
        "rank": 2,
        "device": 0,
        "iterations": 6,
        "iteration_ns": 3_500_000,
        "compute_ns": 3_000_000,
        "waiting_ns": 0,
        "own_ns": 3_000_000,
        "score": 1.5,
        "best_score": 1.0,
    }


def test_what_is_not_known_is_null() -> None:
    alone = json.loads(encode(build_analysis()))
    assert (alone["ranks"], alone["missing_ranks"]) == ([], None)
    assert list_missing(build_analysis(ranks=slow_job())) is None
    assert list_missing(build_analysis(ranks=slow_job(world_size=1 << 19))) is None  # no list for anybody
    assert list_missing(build_analysis(ranks=slow_job(world_size=3))) == []
