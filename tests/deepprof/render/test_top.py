"""The kernels and copies that use the time, in text and in JSON."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from deepprof.diagnosis.diagnosed_job import WorkWithoutLoop
from deepprof.metrics.top_tables import TOP_COPIES, TOP_KERNELS, TopWork
from deepprof.render.json import encode
from deepprof.render.page import TextPage
from deepprof.render.text import print_report
from deepprof.render.top import ROWS, print_top
from tests.deepprof.builders import build_analysis, build_loop

LONG = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"


def build_top(names: int = 2, over: str = "iterations", copies: bool = True) -> TopWork:
    """A mean iteration of 100 ms; each name takes half of what the one before takes."""
    times = [64_000_000 >> number for number in range(names)]
    kernels = {
        "name": [LONG, *(f"kernel_{number}" for number in range(1, names))][:names],
        "variants": [1] * names,
        "calls": [12.0, *[0.5] * (names - 1)][:names],
        "time_ns": times,
        "share_ratio": [time / 100_000_000 for time in times],
        "mean_ns": times,
        "max_ns": times,
    }
    rows = [("HtoD", "pageable", 2.0, 1 << 24, 2_000_000, 0.02, 8.389), (None, None, 1.0, None, 100, 0.000001, None)]
    return TopWork(
        over=over,  # type: ignore[arg-type]
        iterations=5,
        mean_ns=100_000_000.0,
        kernels=pl.DataFrame(kernels, schema=TOP_KERNELS),
        copies=pl.DataFrame(rows if copies else [], schema=TOP_COPIES, orient="row"),
    )


def draw(top: TopWork | None, width: int, work: str = "kernel", encoding: str = "utf-8") -> str:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    print_top(top, TextPage(Console(file=buffer, width=width)), work)
    buffer.seek(0)
    return buffer.read()


WIDE = """
  kernels that take the most time of an iteration
                                                 calls     time   share     each
    sm90_xmma_gemm_bf16b...segment_k_off_kernel     12  64.0 ms  64.0 %  64.0 ms
    kernel_1                                       0.5  32.0 ms  32.0 %  32.0 ms
    kernel_2                                       0.5  16.0 ms  16.0 %  16.0 ms
    kernel_3                                       0.5  8.00 ms   8.0 %  8.00 ms
    kernel_4                                       0.5  4.00 ms   4.0 %  4.00 ms
    3 other kernels: 3.50 ms, 3.5 %

  copies of an iteration, including hidden ones
                             size     time   share  GB/s
    from host, pageable  16.0 MiB  2.00 ms   2.0 %  8.39
    direction unknown           -   100 ns  <0.1 %     -
"""
NARROW = """
  kernels that take the most time of
    an iteration
    calls     time   share     each
    sm90_xmma_gemm_b...ent_k_off_kernel
       12  64.0 ms  64.0 %  64.0 ms
    kernel_1
      0.5  32.0 ms  32.0 %  32.0 ms

  copies of an iteration, including
    hidden ones
        size     time   share  GB/s
    from host, pageable
    16.0 MiB  2.00 ms   2.0 %  8.39
    direction unknown
           -   100 ns  <0.1 %     -
"""


def test_rows_the_longest_first_and_the_rest_as_a_sum() -> None:
    assert draw(build_top(8), 80) == WIDE


def test_on_a_narrow_page_the_values_stand_below_the_names() -> None:
    assert draw(build_top(2), 40) == NARROW


ALIKE = [f"ampere_bf16_s16816gemm_bf16_{size}_ldg8_f2f_stages_64x3_nt" for size in ("128x128", "128x256", "64x64")]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_names_that_are_cut_still_tell_kernels_apart(width: int) -> None:
    top = build_top(3, copies=False)
    named = top.kernels.with_columns(name=pl.Series(ALIKE))
    lines = draw(TopWork("iterations", 5, 1e8, named, top.copies), width).splitlines()
    assert len({line.split()[0] for line in lines if "ampe" in line}) == 3
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_page(width: int, encoding: str) -> None:
    text = draw(build_top(8), width, encoding=encoding)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "64.0 ms" in text


def test_a_loop_without_copies_has_no_block_of_them() -> None:
    assert "copies" in draw(build_top(), 80)
    assert "copies" not in draw(build_top(copies=False), 80)


def test_nothing_measured_nothing_printed() -> None:
    assert draw(None, 80) == ""
    assert draw(build_top(0, copies=False), 80) == ""


def test_the_title_says_what_was_measured() -> None:
    assert "operators that take the most time of the marked step" in draw(build_top(over="marked step"), 80, "operator")
    assert "copies of the recording, including hidden ones" in draw(build_top(over="recording"), 80)


def test_json_has_the_first_rows_and_the_sum_of_the_others() -> None:
    document = json.loads(encode(build_analysis(loops=(build_loop(top=build_top(ROWS + 3)),))))
    (block,) = document["top_work"]
    assert {key: block[key] for key in ("loop", "rank", "device", "stream", "over", "iterations", "mean_ns")} == {
        "loop": 0,
        "rank": 0,
        "device": 0,
        "stream": 7,
        "over": "iterations",
        "iterations": 5,
        "mean_ns": 100_000_000,
    }
    assert len(block["kernels"]) == ROWS
    assert block["kernels"][0] == {
        "name": LONG,
        "variants": 1,
        "calls": 12.0,
        "time_ns": 64_000_000,
        "share_ratio": 0.64,
        "mean_ns": 64_000_000,
        "max_ns": 64_000_000,
    }
    assert (block["other_kernels"]["names"], block["other_kernels"]["calls"]) == (3, 1.5)
    whole = sum(64_000_000 >> number for number in range(ROWS + 3))
    assert sum(row["time_ns"] for row in block["kernels"]) + block["other_kernels"]["time_ns"] == whole
    assert block["copies"][0] == {
        "direction": "HtoD",
        "memory": "pageable",
        "calls": 2.0,
        "bytes": 1 << 24,
        "time_ns": 2_000_000,
        "share_ratio": 0.02,
        "gigabytes_per_s": 8.389,
    }
    assert block["copies"][1]["direction"] is None


def test_what_was_measured_without_a_loop_has_no_number() -> None:
    stretches = (WorkWithoutLoop(0, 1, None, build_top(over="recording")),)
    analysis = build_analysis(loops=(), findings=(), stretches=stretches)
    (block,) = json.loads(encode(analysis))["top_work"]
    assert (block["loop"], block["device"], block["stream"], block["over"]) == (None, 1, None, "recording")
    assert analysis.kernels.select("loop", "device", "name").row(0) == (None, 1, LONG)
    assert analysis.copies["direction"].to_list() == ["HtoD", None]


def test_of_several_devices_without_a_loop_the_longest_is_shown_with_its_place() -> None:
    stretches = (
        WorkWithoutLoop(0, 1, None, build_top()),
        WorkWithoutLoop(3, 0, 7, replace(build_top(over="recording"), mean_ns=2e8)),
    )
    text = io.StringIO()
    print_report(build_analysis(loops=(), findings=(), stretches=stretches), Console(file=text, width=80))
    assert "kernels that take the most time of the recording on rank 3, device 0\n" in text.getvalue()
    assert text.getvalue().count("most time of") == 1


def test_tables_in_python_are_there_without_rows_too() -> None:
    analysis = build_analysis()
    assert (analysis.kernels.height, analysis.copies.height) == (0, 0)
    assert analysis.kernels.columns[:5] == ["loop", "rank", "device", "stream", "name"]


def test_names_are_bounded() -> None:
    top = build_top(1)
    odd = TopWork("iterations", 5, 1e8, top.kernels.with_columns(name=pl.lit("x" * 10_000)), top.copies)
    document = json.loads(encode(build_analysis(loops=(build_loop(top=odd),))))
    assert document["top_work"][0]["kernels"][0]["name"] == f"{'x' * 126}...{'x' * 126}"


def test_long_names_that_differ_in_any_place_differ_in_json() -> None:
    top = build_top(3)
    names = [f"{'a' * 500}{at}{'b' * 500}{at % 2}{'c' * 500}" for at in range(3)]
    odd = TopWork("iterations", 5, 1e8, top.kernels.with_columns(name=pl.Series(names)), top.copies)
    document = json.loads(encode(build_analysis(loops=(build_loop(top=odd),))))
    names = [row["name"] for row in document["top_work"][0]["kernels"]]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 256


APART = [f"{'a' * 40}{one}{'b' * 60}{other}{'c' * 40}" for one, other in ((1, 1), (1, 2), (2, 1))]


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_names_that_differ_at_several_places_never_look_alike(width: int) -> None:
    top = build_top(3, copies=False)
    named = top.kernels.with_columns(name=pl.Series(APART))
    lines = draw(TopWork("iterations", 5, 1e8, named, top.copies), width).splitlines()
    assert len({line.split()[0] for line in lines if "aaa" in line}) == 3
    assert max(map(cell_len, lines)) <= width
