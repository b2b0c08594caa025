"""Real programs on the CPU that keep memory, and their twins that do not; categories against torch's own profiler."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.memory.composition import add_up_by
from deepprof.metrics.memory.device_memory import DeviceMemory, list_memory
from deepprof.metrics.memory.use import measure_peaks
from deepprof.tools.builtin.leaks import Leaks
from deepprof.tools.builtin.memory import Memory
from deepprof.tools.builtin.out_of_memory import OutOfMemory
from deepprof.tools.tool import Report
from deepprof.tools.tool_run import run

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "tests" / "programs" / "keeping.py"
RULES = {"memory-growth", "near-limit", "fragmentation", "allocator-churn"}
MEMORY_OF_KEEPING = 4 * 256 * 64  # bytes of the features of one batch


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the recordings of all programs, made once for all workers together."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed (pip install 'deepprof[programs]')")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "keeping"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            command = [sys.executable, "-m", "tests.programs.keeping", str(folder)]
            environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
            subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=600)
            (folder / "done").touch()
    return folder


def examine(kept: Path, name: str) -> tuple[Analysis, list[Finding]]:
    """Return the analysis of a program, and its findings on memory."""
    analysis = deepprof.analyze(deepprof.read(kept / f"{name}.json"))
    return analysis, [each for each in analysis.findings if each.rule in RULES]


def memory_of(analysis: Analysis) -> DeviceMemory:
    (memory,) = list_memory(analysis.annotated[0], analysis.loops)
    return memory


def line_of(function: str) -> int:
    """Return the line on which a function of the programs begins, from 1 on."""
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(f"def {function}("))


@pytest.mark.parametrize(("name", "function"), [("kept_losses", "compute_loss"), ("cached_features", "copy_features")])
def test_a_leak_is_found_at_its_line(kept: Path, name: str, function: str) -> None:
    _, (found,) = examine(kept, name)
    assert (found.rule, found.severity) == ("memory-growth", "warning")
    place = found.location or {}
    assert str(place["file"]).endswith("tests/programs/keeping.py")
    assert (place["function"], place["line"]) == (function, line_of(function))
    assert function in found.summary


def test_what_leaks_is_measured_to_the_byte(kept: Path) -> None:
    _, (found,) = examine(kept, "cached_features")
    assert found.evidence["nbytes_per_iteration"] == MEMORY_OF_KEEPING
    assert found.evidence["grown_nbytes"] == MEMORY_OF_KEEPING * int(str(found.evidence["leaking_iterations"]))


@pytest.mark.parametrize("name", ["healthy", "noted_losses", "limited_cache", "filling_cache"])
def test_its_twin_is_silent(kept: Path, name: str) -> None:
    assert examine(kept, name)[1] == []


def test_the_peak_is_what_torch_says(kept: Path) -> None:
    analysis, _ = examine(kept, "healthy")
    memory = memory_of(analysis)
    said = max(json.loads((kept / "healthy.torch").read_text()), key=lambda row: sum(row.values()))
    found = dict(add_up_by(memory.peak, "category").rows())
    assert sum(found.values()) == sum(said.values())
    names = {
        "parameters": "PARAMETER",
        "optimizer state": "OPTIMIZER_STATE",
        "inputs": "INPUT",
        "gradients": "GRADIENT",
    }
    assert {name: found[name] for name in names} == {name: said[theirs] for name, theirs in names.items()}
    # The gradient of the loss, a single number, is an activation there and temporary here.
    assert abs(found["activations"] - said["ACTIVATION"]) <= 8
    assert found["temporary"] - 8 <= said["AUTOGRAD_DETAIL"] + said.get("TEMPORARY", 0) <= found["temporary"]


def test_every_block_has_its_owner(kept: Path) -> None:
    memory = memory_of(examine(kept, "healthy")[0])
    activations = memory.blocks.filter(category="activations", operator="aten::relu")
    assert set(activations["layer"]) == {"Sequential_0/ReLU_0"}
    assert set(activations["function"]) == {"compute_loss"}
    state = memory.blocks.filter(category="optimizer state")
    assert set(state["stage"]) == {"optimizer"}
    gradients = memory.blocks.filter(stage="backward", category="gradients")
    assert "aten::linear" in set(gradients["operator"])  # the forward one, below which the backward pass is


def test_each_iteration_has_the_same_peak(kept: Path) -> None:
    analysis, _ = examine(kept, "healthy")
    memory = memory_of(analysis)
    assert memory.use is not None
    peaks = measure_peaks(memory.use, analysis.loops[0], analysis.traces[0])
    assert peaks.height >= 10
    peaks = peaks.tail(10)  # the first may be warm-up, which its time shows or not
    assert peaks["peak_nbytes"].n_unique() == peaks["least_nbytes"].n_unique() == 1
    assert int(peaks["peak_nbytes"][0]) == memory.peak["nbytes"].sum()


def tables_of(report: Report) -> dict[str, pl.DataFrame]:
    return {name: value for name, value in report.items() if isinstance(value, pl.DataFrame)}


def test_the_tools_show_it(kept: Path) -> None:
    trace = deepprof.read(kept / "kept_losses.json", details=True)
    lines = tables_of(run(Leaks(), trace))["lines"]
    assert lines.filter("is_steady")["function"].to_list() == ["compute_loss", "load_batch"]
    tables = tables_of(run(Memory(points=7, by="line", rows=3), trace))
    assert tables["timeline"].height <= 7
    assert tables["timeline"]["high_nbytes"].max() == trace.memory_events["allocated_nbytes"].max()
    assert tables["iterations"]["peak_nbytes"].is_sorted()
    assert tables["peak"].height == 3
    assert tables["peak"]["nbytes"].is_sorted(descending=True)
    assert run(OutOfMemory(), trace)["summary"] == "no allocation failed"
