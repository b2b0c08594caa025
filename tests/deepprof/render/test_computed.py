"""What devices compute, in text and in JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl
import pytest
from rich.cells import cell_len
from rich.console import Console

import deepprof
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.metrics.kernels.computed_work import WORK, WORK_OF_KERNELS, Work
from deepprof.metrics.kernels.kind_words import CATEGORY_WORDS, PRECISION_WORDS, describe_kind
from deepprof.metrics.kernels.kinds import CATEGORIES, PRECISIONS
from deepprof.render.computed import ComputedTime, print_work
from deepprof.render.json import encode
from deepprof.render.page import TextPage
from deepprof.render.text import print_report
from deepprof.render.wording import CPU, GPU, Wording
from deepprof.results.analysis_tables import BREAKDOWN, PLACED_WORK
from tests.deepprof.builders import build_analysis, build_loop
from tests.deepprof.render.reports import read_ranks

Row = tuple[str, str | None, str | None, float]
MS = 1_000_000
PRODUCTS: Row = ("matmul", "fp32", "simt", 13 * MS)
ATTENTION: Row = ("attention", "bf16", "tensor_core", 4 * MS)
REST: list[Row] = [
    ("normalization", None, None, 2 * MS),
    ("softmax", None, None, 1 * MS),
    ("layout", None, None, 400_000),
    ("cast", None, None, 300_000),
    ("pooling", None, None, 200_000),
    ("loss", None, None, 60_000),
    ("random", None, None, 40_000),
]


def build_table(*rows: Row) -> pl.DataFrame:
    """Return a table `WORK`, a kernel a row."""
    whole = sum(ns for *_, ns in rows) or 1.0
    full = [(*kind, 1.0, ns, ns / whole, 1.0 if ns else None) for *kind, ns in rows]
    return pl.DataFrame(full, schema=dict(WORK), orient="row")


def draw(*rows: Row, exposed: float = 0.0, graph: float = 0.0, words: Wording = GPU, width: int = 80) -> str:
    return draw_in("utf-8", ComputedTime(build_table(*rows), exposed, graph), words, width)


def draw_in(encoding: str, computed: ComputedTime, words: Wording, width: int) -> str:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    print_work(computed, TextPage(Console(file=buffer, width=width)), words)
    buffer.seek(0)
    return buffer.read()


WIDE = """
  what the device computes, shares of 21.0 ms
                                                   time   share
    matrix products, float32 on ordinary units  13.0 ms  61.9 %
    attention, bfloat16 on matrix units         4.00 ms  19.0 %
    normalization                               2.00 ms   9.5 %
    softmax                                     1.00 ms   4.8 %
    layout, strided copies                       400 µs   1.9 %
    casts                                        300 µs   1.4 %
    pooling                                      200 µs   1.0 %
    2 other kinds: 100 µs, 0.5 %
    matrix units have 23.5 % of the time of products
"""
NARROW = """
  what the device computes, shares of
    17.0 ms
       time   share
    products, fp32 on ordinary units
    13.0 ms  76.5 %
    attention, bf16 on matrix units
    4.00 ms  23.5 %
    matrix units have 23.5 % of the
      time of products
"""


def test_the_longest_kinds_have_rows_and_the_others_one_line() -> None:
    assert draw(PRODUCTS, ATTENTION, *REST) == WIDE


def test_on_a_narrow_page_words_are_shorter_and_values_below() -> None:
    assert draw(PRODUCTS, ATTENTION, width=40) == NARROW
    assert "products, fp32 on ordinary units  13.0 ms" in draw(PRODUCTS, ATTENTION, width=60)


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_page(width: int, encoding: str) -> None:
    table = build_table(PRODUCTS, ATTENTION, *REST, ("unknown", None, None, 900_000))
    text = draw_in(encoding, ComputedTime(table, 0.0, 100_000), GPU, width)
    assert max(map(cell_len, text.splitlines())) <= width


def test_what_is_not_known_is_a_line_of_its_own_with_what_to_do() -> None:
    text = draw(PRODUCTS, ATTENTION, ("unknown", None, None, 1 * MS))
    assert "    not known by name: 1.00 ms, 5.6 %; deepprof kernels --unknown lists them\n" in text
    assert "unknown lists" not in draw(PRODUCTS, ("unknown", None, None, 1 * MS), words=CPU)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (PRODUCTS, "the device computes only matrix products, float32 on ordinary units"),
        (REST[0], "the device computes only normalization"),
        (
            ("unknown", None, None, 5.0),
            "what the device computes is not known by name; deepprof kernels",
        ),
    ],
)
def test_a_single_kind_is_a_single_sentence(row: Row, sentence: str) -> None:
    text = draw(row)
    assert " ".join(text.split()).startswith(sentence)
    assert "time" not in text


def test_nothing_computed_nothing_printed() -> None:
    assert draw() == draw(("matmul", None, None, 0.0)) == draw(("communication", None, None, 5.0), exposed=5.0) == ""


def test_exposed_communication_is_none_of_what_is_computed() -> None:
    communication: Row = ("communication", None, None, 3 * MS)
    assert draw(PRODUCTS, communication, exposed=3 * MS) == draw(PRODUCTS)
    # A kernel that the table of parts takes for computation stays.
    text = draw(PRODUCTS, communication, exposed=2 * MS)
    assert "shares of 14.0 ms" in text
    assert "communication" in text


def test_the_share_of_matrix_units_is_stated_where_there_are_both() -> None:
    tiny: Row = ("matmul", "fp16", "tensor_core", 0.004 * PRODUCTS[3])
    assert "matrix units have" not in draw(PRODUCTS, tiny)
    assert "matrix units have" not in draw(ATTENTION, REST[0])


def test_on_a_cpu_operators_compute() -> None:
    assert "what the operators compute, shares of 17.0 ms" in draw(PRODUCTS, ATTENTION, words=CPU)


def test_every_category_and_precision_has_words_of_its_own() -> None:
    assert set(CATEGORY_WORDS) == set(CATEGORIES)
    assert set(PRECISION_WORDS) == set(PRECISIONS)
    assert len(set(CATEGORY_WORDS.values())) == len(CATEGORIES)
    assert describe_kind("rnn", "fp16", None) == "recurrent layers, float16"
    assert describe_kind("matmul", None, None) == "matrix products, type not known"
    assert describe_kind("attention", "fp8", "tensor_core", short=True) == "attention, fp8 on matrix units"


def read(analysis: deepprof.Analysis) -> dict[str, Any]:
    return dict(json.loads(encode(analysis)))


def test_json_has_integers_that_add_up_and_shares_that_sum_to_one() -> None:
    thirds = build_table(*((name, None, None, 10 / 3) for name in ("softmax", "pooling", "loss")))
    places = thirds.select(
        pl.lit(None, pl.Int64).alias("loop"),
        pl.lit(3, pl.Int64).alias("rank"),
        pl.lit(1, pl.UInt16).alias("device"),
        pl.all(),
    )
    analysis = build_analysis(work_of_recordings=(places.cast(dict(PLACED_WORK)),), loops=())
    rows = read(analysis)["work"]
    assert [(row["rank"], row["device"], row["category"], row["time_ns"], row["kernels"]) for row in rows] == [
        (3, 1, "softmax", 4, 1),
        (3, 1, "pooling", 3, 1),
        (3, 1, "loss", 3, 1),
    ]
    assert [row["share_ratio"] for row in rows] == [0.333334, 0.333333, 0.333333]
    assert set(rows[0]) == {
        "rank", "device", "category", "precision", "unit", "kernels", "time_ns", "share_ratio", "sure_ratio",
    }  # fmt: skip


def test_json_of_a_loop_has_the_same_rows_per_iteration() -> None:
    work = Work(build_table(PRODUCTS, ATTENTION), pl.DataFrame(schema=dict(WORK_OF_KERNELS)))
    (loop,) = read(build_analysis(loops=(build_loop(work=work),)))["loops"]
    assert loop["work"][0] == {
        "category": "matmul",
        "precision": "fp32",
        "unit": "simt",
        "kernels": 1.0,
        "time_ns": 13 * MS,
        "share_ratio": 0.764706,
        "sure_ratio": 1.0,
    }
    assert loop["matrix_unit_ratio"] == 0.235294


def test_json_without_work_has_no_rows() -> None:
    document = read(build_analysis())
    assert (document["work"], document["loops"][0]["work"]) == ([], [])
    assert document["trace"]["matrix_unit_ratio"] is document["loops"][0]["matrix_unit_ratio"] is None
    table = build_table(("matmul", None, None, 0.0))
    loop = build_loop(work=Work(table, pl.DataFrame(schema=dict(WORK_OF_KERNELS))))
    (row,) = read(build_analysis(loops=(loop,)))["loops"][0]["work"]
    assert (row["time_ns"], row["share_ratio"], row["sure_ratio"]) == (0, 0.0, None)


@pytest.fixture(scope="module")
def job() -> deepprof.Analysis:
    return deepprof.analyze(read_ranks())


def test_rows_add_up_to_the_computing_time_and_the_exposed_communication(job: deepprof.Analysis) -> None:
    document = read(job)
    for rank, device, *parts in job.breakdown.select(
        "rank", "device", "compute_ns", "exposed_communication_ns"
    ).iter_rows():
        rows = [row for row in document["work"] if (row["rank"], row["device"]) == (rank, device)]
        assert sum(row["time_ns"] for row in rows) == sum(parts)
        assert sum(row["share_ratio"] for row in rows) == pytest.approx(1, abs=1e-6)
    for loop, block in zip(job.loops, document["loops"], strict=True):
        parts = mean_parts(loop)
        whole = parts["compute_ns"] + parts["exposed_communication_ns"]
        assert sum(row["time_ns"] for row in block["work"]) == pytest.approx(whole, abs=1)
        assert sum(row["share_ratio"] for row in block["work"]) == pytest.approx(1, abs=1e-6)
        assert loop.top is not None
        assert loop.top.kernels["time_ns"].sum() == pytest.approx(whole, abs=loop.top.kernels.height)
    assert document["trace"]["matrix_unit_ratio"] == pytest.approx(job.matrix_unit_ratio, abs=1e-6)


def test_a_report_states_the_same_time_for_the_part_and_for_its_kinds(job: deepprof.Analysis) -> None:
    text = io.StringIO()
    print_report(job, Console(file=text, width=100))
    lines = text.getvalue().splitlines()
    compute = next(line for line in lines if line.startswith("    compute  "))
    title = next(line for line in lines if line.startswith("  what the device computes"))
    assert " ".join(compute.split()[1:3]) in title


def test_without_a_loop_the_recordings_of_all_devices_are_added_up() -> None:
    columns = {"loop": None, "rank": 0, "category": "matmul", "kernels": 1.0, "share_ratio": 1.0, "sure_ratio": 1.0}
    rows = [
        columns | {"device": device, "time_ns": 5.0 * MS, "precision": "fp16", "unit": "tensor_core"}
        for device in (0, 1)
    ]
    rows.append(columns | {"device": 1, "category": "communication", "time_ns": 2.0 * MS})
    parts = [{"rank": 0, "device": device, "compute_ns": 5 * MS} for device in (0, 1)]
    parts[1]["exposed_communication_ns"] = 2 * MS
    breakdown = pl.DataFrame(parts, schema=dict(BREAKDOWN)).fill_null(0)
    work = pl.DataFrame(rows, schema=dict(PLACED_WORK))
    text = io.StringIO()
    print_report(
        build_analysis(loops=(), findings=(), breakdown=breakdown, work_of_recordings=(work,)),
        Console(file=text, width=80),
    )
    assert "  the devices compute only matrix products, float16 on matrix units\n" in text.getvalue()


def test_launches_of_whole_graphs_are_named_as_such() -> None:
    unknown: Row = ("unknown", None, None, 10 * MS)
    assert "not known by name" not in draw(PRODUCTS, unknown, graph=10 * MS)
    assert "    in whole graphs, recorded as one event each: 10.0 ms, 43.5 %\n" in draw(
        PRODUCTS, unknown, graph=10 * MS
    )
    assert (
        draw(unknown, graph=10 * MS) == "\n  what the device computes is in whole graphs, recorded as one event each\n"
    )
    parts = draw(unknown, graph=6 * MS)
    assert "each: 6.00 ms, 60.0 %\n    not known by name: 4.00 ms, 40.0 %;" in parts


def test_a_single_row_more_is_shown_and_the_longest_rest_comes_first() -> None:
    assert "other kind" not in draw(PRODUCTS, ATTENTION, *REST[:5])
    lines = draw(PRODUCTS, ("loss", None, None, 10_000.0), ("unknown", None, None, 20_000.0)).splitlines()
    assert [line.split(":")[0].strip() for line in lines[-2:]] == ["not known by name", "1 other kind"]
