"""The sentence on how much of its peaks a device uses."""

from __future__ import annotations

import pytest

from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.render.utilization import describe_utilization
from tests.deepprof.builders import build_analysis
from tests.deepprof.web.documents.rooflines import PEAKS, PRODUCT, UNKNOWN, with_groups
from tests.tables import Row


@pytest.mark.parametrize(
    ("row", "peaks", "text"),
    [
        (PRODUCT, PEAKS, "could be saved"),
        (UNKNOWN, PEAKS, f"at the peaks of {PEAKS.name}"),
        (UNKNOWN, None, "the device's peaks are not known"),
    ],
)
def test_known_peaks_are_named_though_nothing_can_be_saved(row: Row, peaks: DevicePeaks | None, text: str) -> None:
    (loop,) = with_groups(build_analysis(), row, peaks=peaks).loops
    assert loop.roofline is not None
    assert text in describe_utilization(loop.roofline)
