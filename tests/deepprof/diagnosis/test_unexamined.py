"""What is stated where no function was recorded: how this recorder records them."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import STACKS
from deepprof.diagnosis.unexamined import FUNCTIONS, explain_missing_lines
from tests.tables import launch, make_trace, span


@pytest.mark.parametrize("format_", ["kineto", "nsys", "nsys-jax", "nvprof-csv", "rpd-json", "rocprof", "rocpd"])
def test_each_recorder_has_its_own_way(format_: str) -> None:
    assert explain_missing_lines(replace(make_trace(), format=format_)) == FUNCTIONS[format_.partition("-")[0]]


def test_nothing_is_said_of_recorders_without_one() -> None:
    assert explain_missing_lines(make_trace()) is None
    assert explain_missing_lines(replace(make_trace(), format="xplane")) is None


def test_functions_stacks_and_ranges_serve() -> None:
    function = launch(0, 0, 5) | {"category": "python", "correlation": None}
    stacks = pl.DataFrame({"stack_id": [0], "frames": ["a.py(1): f"]}, schema=dict(STACKS))
    for format_, with_ranges in (("kineto", True), ("nsys", False)):
        assert explain_missing_lines(replace(make_trace(host=[function]), format=format_)) is None
        assert explain_missing_lines(replace(make_trace(), format=format_, stacks=stacks)) is None
        ranges = replace(make_trace(annotations=[span(0, 0, 5)]), format=format_)
        assert (explain_missing_lines(ranges) is not None) is with_ranges, "Kineto's own ranges are no functions"
