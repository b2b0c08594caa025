"""A trace and its copy in a store have the same calling contexts, in every format."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import deepprof
from deepprof.collectors.store.rank import write_rank
from deepprof.collectors.trace import TABLES
from deepprof.job.conversion import convert

FILES = {  # the smaller ones of every format
    "kineto": "tl-h100-falcon/Falconsai_nsfw_image_detection__1016002.json.gz",
    "kineto on AMD": "tl-mi300-falcon/Falconsai_nsfw_image_detection__1016002.json.gz",
    "nsys": "cs336-zx-2_7B-compile/result_2_7B_compile_ro.sqlite",
    "nsys of the system": "cs336-ihor/result.sqlite",
    "nvprof": "nvprof-lm/net.sql",
    "nvprof-csv": "nvprof-csv-cg/conjugateGradient_trace.csv",
    "rpd": "rpd-matmul/matmul_result.rpd",
    "rpd-json": "rpd-matmul-json/matmul_result.json",
    "rocprof json": "rocprofv3-json-excerpt/excerpt_results.json.gz",
    "rocprof csv": "rocprofv3-csv-llamacpp/decode_kernel_trace.csv",
    "xplane": "tl-jax08-gemm/tw003.xplane.pb",
}


@pytest.mark.traces
@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_a_store_has_the_contexts_of_its_trace(traces: Path, tmp_path: Path, file: str) -> None:
    convert(traces / file, tmp_path / "job.deepprof", jobs=1)
    found = deepprof.analyze(deepprof.read(tmp_path / "job.deepprof"))
    expected = deepprof.analyze(deepprof.read(traces / file))
    assert_same_contexts(found, expected)
    assert expected.contexts.height > 10


@pytest.mark.traces
@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_a_store_of_a_trace_with_details_has_its_tables_and_contexts(traces: Path, tmp_path: Path, file: str) -> None:
    trace = deepprof.read(traces / file, details=True)
    write_rank(trace, tmp_path / "rank=0")
    stored = deepprof.read(tmp_path / "rank=0", details=True)
    for table in TABLES:
        assert_frame_equal(getattr(stored, table), getattr(trace, table))
    assert_same_contexts(deepprof.analyze(stored), deepprof.analyze(trace))


def assert_same_contexts(found: deepprof.Analysis, expected: deepprof.Analysis) -> None:
    assert_frame_equal(found.contexts, expected.contexts)
    assert_frame_equal(found.contexts_in_iterations, expected.contexts_in_iterations)
