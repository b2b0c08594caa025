"""Exports of Nsight Compute in both forms: shares by hand, numbers as ncu writes them, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.stalls import stall_reasons
from deepprof.collectors.stalls.stall_reasons import StallExport, read_stalls
from tests.collectors.damage import checked, damaged
from tests.collectors.stalls.exports import RATIO, SAMPLES, ratios, samples, write_details, write_raw

BOTH = pytest.mark.parametrize("write", [write_raw, write_details])


def read(tmp_path: Path, text: str | bytes) -> StallExport:
    path = tmp_path / "stalls.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_stalls(path)


def shares(export: StallExport) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for kernel, reason, share in export.table.rows():
        found.setdefault(kernel, {})[reason] = round(share, 9)
    return found


def refused(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(TraceError) as refusal:
        read(tmp_path, text)
    assert "stalls.csv" in str(checked(refusal.value))
    return str(refusal.value)


@BOTH
def test_shares_are_of_all_launches_of_a_kernel(tmp_path: Path, write) -> None:
    export = read(
        tmp_path,
        write(
            [
                ("gemm<float, 4>(int)", ratios(long_scoreboard=3.0, barrier="0.50", selected="1.00")),
                ("copy", ratios(wait=2, selected=2)),
                ("gemm<float, 4>(int)", ratios(long_scoreboard=5.0, barrier="0.50", selected=0)),
            ]
        ),
    )
    assert shares(export) == {
        "gemm<float, 4>(int)": {"long_scoreboard": 0.8, "barrier": 0.1, "selected": 0.1},
        "copy": {"wait": 0.5, "selected": 0.5},
    }
    assert export.unreadable == 0


@BOTH
def test_numbers_have_separators_and_scaled_units(tmp_path: Path, write) -> None:
    scaled = {SAMPLES.format("barrier"): "Kwarp"}
    launch = ("gemm", samples(wait="1,234,500", barrier="1,234.5", selected="2469000"))
    assert shares(read(tmp_path, write([launch], scaled))) == {
        "gemm": {"wait": 0.25, "barrier": 0.25, "selected": 0.5},
    }


@BOTH
def test_a_decimal_comma_is_read_where_it_is_the_custom(tmp_path: Path, write) -> None:
    small = ("gemm", ratios(wait="0,75", barrier="1.234,25", selected="0,0"))
    large = ("copy", samples(wait="27.595.520", barrier="1.234", selected="500"))
    found = shares(read(tmp_path, write([small, large])))
    assert found["gemm"] == pytest.approx({"wait": 0.75 / 1235, "barrier": 1234.25 / 1235, "selected": 0.0})
    assert found["copy"]["wait"] == pytest.approx(27_595_520 / 27_597_254)


@BOTH
def test_one_odd_number_does_not_change_the_others(tmp_path: Path, write) -> None:
    export = read(tmp_path, write([("gemm", ratios(wait="0.50", barrier="1.50", drain="1,234", selected="0,75"))]))
    assert shares(export)["gemm"]["drain"] == pytest.approx(1234 / 1236)
    assert export.unreadable == 1


@BOTH
def test_ways_to_measure_are_not_mixed(tmp_path: Path, write) -> None:
    both = ("gemm", ratios(wait=3, selected=1) | samples(wait=1, barrier=99))
    sampled = ("copy", ratios(wait=0) | samples(wait=1, barrier=1, barrier_not_issued=7, wait_not_issued=3))
    older = ("norm", {"smsp__average_warp_issue_stalled_wait_per_issue_active.ratio": 1})
    latency = ("sum", {"smsp__average_warp_latency_issue_stalled_wait.ratio": 1})
    active = ("mul", {"smsp__warp_issue_stalled_membar_per_warp_active.pct": 40})
    assert shares(read(tmp_path, write([both, sampled, older, latency, active]))) == {
        "gemm": {"wait": 0.75, "selected": 0.25},
        "copy": {"wait": 0.5, "barrier": 0.5},
        "norm": {"wait": 1.0},
        "sum": {"wait": 1.0},
        "mul": {"membar": 1.0},
    }


@BOTH
def test_what_is_no_number_is_counted(tmp_path: Path, write) -> None:
    launch = ("gemm", ratios(wait=1, barrier="n/a", membar="nan", drain=-1, sleeping="1e300", selected="(!) no data"))
    export = read(tmp_path, write([launch]))
    assert shares(export) == {"gemm": {"wait": 1.0}}
    assert export.unreadable == 5


def test_a_metric_that_several_sections_list_counts_once(tmp_path: Path) -> None:
    text = write_details([("gemm", ratios(wait=1, barrier=3))])
    line = next(line for line in text.splitlines() if "barrier" in line)
    again = text.replace(line, "\n".join([line, line.replace("Warp State Statistics", "Scheduler")]))
    assert shares(read(tmp_path, again)) == {"gemm": {"wait": 0.25, "barrier": 0.75}}


def test_launches_of_several_processes_are_not_one(tmp_path: Path) -> None:
    text = write_details([("gemm", ratios(wait=1, barrier=1))])
    head, *lines = text[text.index('"ID"') :].splitlines()
    more = [line.replace("4711", "4712").replace('"1"', '"7"') for line in lines if "wait" in line]
    assert shares(read(tmp_path, "\n".join([head, *lines, *more]))) == {
        "gemm": {"wait": 0.888888889, "barrier": 0.111111111}
    }


@BOTH
def test_windows_line_ends_and_byte_order_marks_are_read(tmp_path: Path, write) -> None:
    text = write([("gemm", ratios(wait=1))])
    crlf = b"\xef\xbb\xbf" + text[text.index('"ID"') :].replace("\n", "\r\n").encode()
    assert shares(read(tmp_path, crlf)) == {"gemm": {"wait": 1.0}}


@BOTH
def test_without_stall_metrics_it_says_which_to_collect(tmp_path: Path, write) -> None:
    assert "--section WarpStateStats" in refused(tmp_path, write([("gemm", {"dram__bytes.sum": 1})]))
    assert "has no stall reasons" in refused(tmp_path, write([("gemm", ratios(wait=0))]))
    assert "has no stall reasons" in refused(tmp_path, write([]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no export of Nsight Compute"),
        (b"a,b\n1,2\n", "no export of Nsight Compute"),
        (b"NVR\0\1\2", "is a report of Nsight Compute"),
        (b'"ID","Kernel Names"\n"0","gemm"\n', "no columns"),
        (b'"ID","Kernel Name",\0\n', "no export of Nsight Compute"),
        (b'"ID","Kernel Name"' + b",x" * 20_000 + b"\n", "more than 20,000 columns"),
    ],
)
def test_another_file_is_named_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in refused(tmp_path, content)
    assert "--csv --page raw" in refused(tmp_path, content)


def test_lines_that_leave_out_columns_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_reasons, "CELLS", 1_000)
    launch = ("gemm", {RATIO.format(f"r{i}"): 1 for i in range(100)})
    assert "too many to read" in refused(tmp_path, write_raw([launch]) + "1\n" * 20)


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_reasons, "LIMIT_NBYTES", 100)
    assert "more than the limit of 100 bytes" in refused(tmp_path, write_raw([("gemm", ratios(wait=1))]))


@BOTH
def test_damaged_files_are_read_or_refused(tmp_path: Path, write) -> None:
    launches = [(f"k{i}<int>", ratios(wait=i, barrier="1,000.5", selected=1)) for i in range(4)]
    for content in damaged(write(launches).encode(), count=30):
        try:
            export = read(tmp_path, content)
        except TraceError as refusal:
            checked(refusal)
            continue
        sums = export.table.group_by("kernel").agg(pl.col("share_ratio").sum())["share_ratio"]
        assert all(abs(each - 1) < 1e-9 for each in sums)
