"""Which kernels run in some windows, and which part of that time each of them has."""

from __future__ import annotations

import numpy as np

from deepprof.metrics.kernels.running import OUTSIDE, list_running
from tests.tables import copy, event, make_trace

NAMES = ("gemm", "add", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
WINDOWS = np.array([100, 200]), np.array([200, 300])


def running(
    *rows: dict[str, object], windows: tuple[np.ndarray, np.ndarray] | None = WINDOWS
) -> list[tuple[object, ...]]:
    table = list_running(make_trace(rows, names=NAMES), 0, windows)
    return table.select("start_ns", "window", "ns", "part_ns").rows()


def test_kernels_one_after_another_have_their_own_length() -> None:
    assert running(event(0, 100, 130), event(1, 130, 150), event(0, 210, 215)) == [
        (100, 0, 30, 30.0),
        (130, 0, 20, 20.0),
        (210, 1, 5, 5.0),
    ]


def test_kernels_at_once_share_the_time_and_a_collective_has_what_is_left() -> None:
    # 110 to 120: two kernels; 120 to 130: one; 130 to 150: only the collective.
    found = running(event(0, 110, 120), event(1, 110, 130, stream=9), event(2, 105, 150, stream=20))
    assert found == [(105, 0, 45, 25.0), (110, 0, 10, 5.0), (110, 0, 20, 15.0)]


def test_what_reaches_into_a_window_counts_there_with_what_lies_in_it() -> None:
    assert running(event(0, 90, 120), event(0, 190, 220), event(0, 290, 340), event(0, 300, 310)) == [
        (90, OUTSIDE, 30, 20.0),
        (190, 0, 30, 30.0),
        (290, 1, 50, 10.0),
    ]


def test_time_between_windows_counts_for_nothing() -> None:
    apart = np.array([100, 300]), np.array([200, 400])
    assert running(event(0, 150, 350), event(0, 210, 290, stream=9), windows=apart) == [(150, 0, 200, 100.0)]


def test_copies_and_other_devices_do_not_run_here_and_one_without_length_takes_no_time() -> None:
    rows = (copy(110, 120, 8), event(0, 130, 140, device=1), event(0, 150, 160, activity="sync"), event(1, 170, 170))
    assert running(*rows) == [(170, 0, 0, 0.0)]
    assert running(*rows, windows=None) == [(170, 0, 0, 0.0)]


def test_without_windows_all_is_one() -> None:
    assert running(event(0, 5, 10), event(1, 7, 12, stream=9), windows=None) == [(5, 0, 5, 3.5), (7, 0, 5, 3.5)]


def test_no_kernels_no_rows() -> None:
    assert running() == running(windows=None) == running(event(0, 1, 2), windows=(np.array([], np.int64),) * 2) == []
