"""Measured peaks next to the vendor's."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from deepprof.metrics.cost.achieved_peaks import PeakTrial
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.render.page import TextPage
from deepprof.render.roofline.peaks_table import draw_peaks, draw_trials

VENDOR = DevicePeaks(
    "made up", "data sheet", matrix_flops_per_s={"float16": 100e12}, memory_nbytes_per_s={"memory": 2e12}
)
MEASURED = DevicePeaks(
    "made up",
    "measured",
    vector_flops_per_s={"float32": 10e12},
    matrix_flops_per_s={"float16": 75e12},
    memory_nbytes_per_s={"memory": 1.8e12},
    is_measured=True,
)


def printed(vendor: DevicePeaks | None) -> list[str]:
    console = Console(file=StringIO(), width=80)
    with console.capture() as captured:
        draw_peaks(TextPage(console), MEASURED, vendor)
    return captured.get().splitlines()


def test_each_peak_is_a_part_of_the_vendors() -> None:
    lines = [line.split("  ") for line in printed(VENDOR)]
    rows = {line[0]: [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}
    assert rows["float16 products"] == ["75 TFLOP/s", "100 TFLOP/s", "75.0 %"]
    assert rows["float32 products"] == ["10 TFLOP/s", "-", "-"]
    assert rows["memory"] == ["1.8 TB/s", "2 TB/s", "90.0 %"]


def test_without_a_vendor() -> None:
    assert printed(None)[-1] == "No vendor's figures of this device are known here."


def test_trials() -> None:
    console = Console(file=StringIO(), width=80)
    with console.capture() as captured:
        draw_trials(TextPage(console), [PeakTrial("product", "float32", 256, 2 * 256**3, 1_000_000, 12)])
    row = captured.get().splitlines()[1]
    assert [part.strip() for part in row.split("  ") if part.strip()] == [
        "product",
        "float32",
        "256 x 256",
        "12",
        "1.00 ms",
        "33.6 GFLOP/s",
    ]
