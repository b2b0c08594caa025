"""The tool for AMD GPUs fits our own headers. What it does with the SDK's nobody has tried."""

from __future__ import annotations

import os
import shutil

import pytest

from .building import HERE, INJECT, run

TOOL = INJECT.parent / "rocprofiler" / "tool.cpp"


def test_the_tool_compiles_against_what_it_says_of_the_sdk() -> None:
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Werror", "-isystem", str(HERE / "rocprofiler_stub")]
    run([compiler, *flags, str(TOOL)])
