"""How few kernels make most calls, computed by hand."""

from __future__ import annotations

import pytest

from deepprof.tools import find_tool, run
from deepprof.tools.options import make_tool
from tests.tables import copy, event, make_trace

CALLS = [0] * 6 + [1] * 3 + [2]


@pytest.fixture
def trace():
    rows = [event(name, 10 * at, 10 * at + name + 1) for at, name in enumerate(CALLS)]
    return make_trace([*rows, copy(500, 600, 8)], names=["gemm", "relu", "tanh"])


def measure(trace, *words: str):
    return run(make_tool(find_tool("kernel-frequency"), words), trace)


def test_names_by_calls_with_their_shares(trace) -> None:
    found = measure(trace)
    kernels = found["kernels"]
    assert kernels.select("name", "calls", "time_ns").rows() == [("gemm", 6, 6), ("relu", 3, 6), ("tanh", 1, 3)]
    assert kernels["share_ratio"].to_list() == pytest.approx([0.6, 0.3, 0.1])
    assert kernels["cumulative_ratio"].to_list() == pytest.approx([0.6, 0.9, 1.0])
    assert {name: value for name, value in found.items() if name != "kernels"} == {
        "summary": "2 of 3 kernel names make 90.0 % of 10 calls",
        "kernel_names": 3,
        "calls": 10,
        "frequent_names": 2,
    }


def test_options_say_how_many_rows_and_which_share(trace) -> None:
    found = measure(trace, "--rows", "1", "--share=0.61")
    assert found["kernels"].height == 1
    assert found["frequent_names"] == 2
    assert measure(trace, "--share", "0.6")["summary"] == "1 of 3 kernel names makes 60.0 % of 10 calls"
    assert measure(trace, "--rows", "0")["kernels"].height == 3


def test_ranks_are_added_up(trace) -> None:
    twice = measure([trace, trace])["kernels"]
    assert twice.select("name", "calls", "time_ns").rows() == [("gemm", 12, 12), ("relu", 6, 12), ("tanh", 2, 6)]


def test_without_kernels_it_says_so() -> None:
    found = measure(make_trace())
    assert found["summary"] == "no kernel was recorded"
    assert found["frequent_names"] == 0
    assert found["kernels"].is_empty()


def test_of_one_kernel_one_name_makes_all_calls() -> None:
    assert measure(make_trace([event(0, 0, 1)]))["summary"] == "1 of 1 kernel name makes 90.0 % of 1 call"
