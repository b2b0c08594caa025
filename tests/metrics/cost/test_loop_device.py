"""Which device a loop ran on, from lists that number devices as the job sees them or as the host does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import DEVICES, Trace
from deepprof.metrics.cost.loop_device import describe_device, find_device_peaks
from tests.tables import make_trace, table

H100 = "NVIDIA H100 80GB HBM3"


def listing(*devices: tuple[int, str, int]) -> Trace:
    """Return a trace with such devices: number, name, multiprocessors."""
    rows = [{"device": number, "name": name, "multiprocessors": cores} for number, name, cores in devices]
    return replace(make_trace(), devices=table(rows, DEVICES))


def test_a_listed_device_is_itself() -> None:
    trace = listing((0, "NVIDIA A100-SXM4-80GB", 108), (1, H100, 132))
    assert describe_device(trace, 1) == {"name": H100, "memory_nbytes": None, "multiprocessors": 132}
    found = find_device_peaks(trace, 1)
    assert found is not None
    assert found.matrix_flops_per_s["bfloat16"] == pytest.approx(989e12, rel=0.001)


def test_one_that_is_not_listed_is_like_the_others_if_these_are_alike() -> None:
    alike = listing((0, H100, 132), (1, H100, 132))
    assert (found := describe_device(alike, 5)) is not None
    assert found["name"] == H100
    assert describe_device(listing((0, H100, 132), (1, "NVIDIA A100-SXM4-80GB", 108)), 5) is None
    assert describe_device(listing(), 0) is None
    assert find_device_peaks(listing(), 0) is None


def test_a_slice_of_a_device_has_no_known_peaks() -> None:
    assert find_device_peaks(listing((0, H100, 60)), 0) is None
    assert find_device_peaks(listing((0, "Some Card", 60)), 0) is None
