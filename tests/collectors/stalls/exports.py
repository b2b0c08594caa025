"""Exports of Nsight Compute by hand, as `ncu --csv` writes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SAMPLES = "smsp__pcsamp_warps_issue_stalled_{}"
PREAMBLE = (
    '==PROF== Connected to process 4711 (/usr/bin/python3)\nepoch 1, loss 0.3\n==PROF== Profiling "gemm" - 0: 100%\n'
)
PLACE = ("127.0.0.1", "1", "7")

Launch = tuple[str, Mapping[str, object]]  # the kernel, and its metrics


def write_raw(launches: Sequence[Launch], units: Mapping[str, str] | None = None) -> str:
    """Return an export with a row for every launch, a column for every metric, and a row of units."""
    metrics = list(dict.fromkeys(name for _, values in launches for name in values))
    rows: list[Sequence[object]] = [
        ["ID", "Process ID", "Host Name", "Context", "Stream", "Kernel Name", *metrics],
        ["", "", "", "", "", "", *((units or {}).get(name, "inst") for name in metrics)],
    ]
    for number, (kernel, values) in enumerate(launches):
        rows.append([number, 4711, *PLACE, kernel, *(values.get(name, "") for name in metrics)])
    return PREAMBLE + _write(rows)


def write_details(launches: Sequence[Launch], units: Mapping[str, str] | None = None) -> str:
    """Return an export with a row for every metric of every launch."""
    head = ["ID", "Process ID", "Host Name", "Kernel Name", "Context", "Stream", "Section Name"]
    rows: list[Sequence[object]] = [[*head, "Metric Name", "Metric Unit", "Metric Value"]]
    for number, (kernel, values) in enumerate(launches):
        for name, value in values.items():
            place = [number, 4711, PLACE[0], kernel, *PLACE[1:], "Warp State Statistics"]
            rows.append([*place, name, (units or {}).get(name, "inst"), value])
    return PREAMBLE + _write(rows) + "==WARNING== Found outstanding GPU clock reset\n"


def _write(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


def ratios(**shares: object) -> dict[str, object]:
    """Return the metrics of a launch by the reason."""
    return {RATIO.format(reason): value for reason, value in shares.items()}


def samples(**shares: object) -> dict[str, object]:
    """Return the samples of a launch by the reason."""
    return {SAMPLES.format(reason): value for reason, value in shares.items()}
