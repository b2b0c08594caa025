"""Real training programs with a planted mistake, profiled by torch.profiler: the iterations found are the true ones."""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from rich.console import Console

import deepprof
from deepprof.diagnosis.on_cpu import DEVICE_WORDS
from deepprof.metrics.operators import is_stand_in
from deepprof.render.text import print_report
from tests.programs.table import ITERATIONS, PROGRAMS
from tests.widening import slow_unless

ROOT = Path(__file__).parents[1]
NEAR = 0.03  # of an iteration: a begin that is this close is the true one
CERTAIN = 0.8  # a headline this sure must be right
VERDICTS = [program.on_cpu for program in PROGRAMS.values()]
QUICK = [name for at, name in enumerate(PROGRAMS) if PROGRAMS[name].on_cpu not in VERDICTS[:at]]  # one of every verdict
NAMES = slow_unless(QUICK.__contains__, PROGRAMS)


@dataclass(frozen=True)
class Recording:
    """A program's trace, and when its iterations began."""

    path: Path
    begins_ns: npt.NDArray[np.int64]


Record = Callable[..., Recording]


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Return what runs a program once per session, for all workers together."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed (pip install 'deepprof[programs]')")
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "programs"
    shared.mkdir(exist_ok=True)
    return functools.partial(run_once, shared)


def run_once(directory: Path, name: str, device: str = "cpu", *flags: str) -> Recording:
    """Run a program, or wait for the worker that does, and return its recording; those of a usual run go together."""
    ending = "".join(("-", device, *flags))
    together = QUICK if name in QUICK and ending == "-cpu" else [name]
    begins = directory / f"{together[0]}{ending}.begins"
    with begins.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not begins.exists():
            begins.write_text(
                run_programs(*together, "-o", f"{directory}/{{}}{ending}.json", "--device", device, *flags)
            )
    said = {each["name"]: each["begins_ns"] for each in map(json.loads, begins.read_text().splitlines())}
    return Recording(directory / f"{name}{ending}.json", np.array(said[name]))


def run_programs(*arguments: str) -> str:
    """Run `python -m tests.programs` and return what it prints. On the CPU it must not see a GPU: one that is listed
    could be in use, for all that a trace states."""
    seen = {} if "cuda" in arguments else {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "error::DeprecationWarning:tests", "-m", "tests.programs", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | seen, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@functools.cache
def has_cuda() -> bool:
    """Return whether torch sees a GPU, without importing it into the tests."""
    if shutil.which("nvidia-smi") is None:
        return False
    asked = [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == "True"


def check_iterations(analysis: deepprof.Analysis, recording: Recording) -> None:
    """Assert that the one loop has the true iterations, begun with the first kernel after each true begin."""
    (loop,) = analysis.loops
    found = loop.iterations["start_ns"].to_numpy()
    assert len(found) == ITERATIONS == len(recording.begins_ns)
    kernels = analysis.traces[0].device_events.filter(activity="kernel", stream=loop.stream)["start_ns"].to_numpy()
    true = kernels[np.searchsorted(kernels, recording.begins_ns)]
    assert np.abs(found - true).max() <= NEAR * np.diff(true).min()


@pytest.mark.parametrize("name", NAMES)
def test_the_true_iterations_are_found_on_a_cpu(record: Record, name: str) -> None:
    recording = record(name)
    analysis = deepprof.analyze(deepprof.read(recording.path))
    assert is_stand_in(analysis.traces[0])
    check_iterations(analysis, recording)


@pytest.mark.parametrize("name", [pytest.param("healthy", marks=pytest.mark.slow), "slow-loader"])
def test_the_profilers_steps_agree(record: Record, name: str) -> None:
    recording = record(name, "cpu", "--annotated")
    analysis = deepprof.analyze(deepprof.read(recording.path))
    check_iterations(analysis, recording)
    agreement = analysis.loops[0].agreement
    assert agreement is not None
    assert agreement.name.startswith("ProfilerStep")
    assert agreement.ratio >= 0.9  # the first step of a loader begins with setting the loader up


@pytest.mark.parametrize("name", NAMES)
def test_the_headline_is_right_on_a_cpu(record: Record, name: str) -> None:
    check_headline(deepprof.analyze(deepprof.read(record(name).path)), PROGRAMS[name].on_cpu)


@pytest.mark.parametrize("name", NAMES)
def test_nobody_reads_of_devices_on_a_cpu(record: Record, name: str) -> None:
    text = io.StringIO()
    print_report(deepprof.analyze(deepprof.read(record(name).path)), Console(file=text, width=80), verbose=True)
    report = text.getvalue().split("\n", 1)[1]  # without the path
    assert DEVICE_WORDS.findall(report) == []
    assert report.count("the CPU only") == 1  # once, and not in two notes


def check_headline(analysis: deepprof.Analysis, expected: str | None) -> None:
    """Assert that the first finding is the planted mistake, and that a sound program has none that is sure."""
    if expected is None:
        assert [f.rule for f in analysis.findings if f.confidence >= CERTAIN] == []
    else:
        assert [f.rule for f in analysis.findings[:1]] == [expected]


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_iterations_and_headline_are_right_on_a_gpu(record: Record, name: str) -> None:
    if not has_cuda():
        pytest.skip("no CUDA device")
    recording = record(name, "cuda")
    analysis = deepprof.analyze(deepprof.read(recording.path))
    assert not is_stand_in(analysis.traces[0])
    (loop,) = analysis.loops
    assert abs(int(loop.iterations["complete"].sum()) - ITERATIONS) <= 1
    check_headline(analysis, PROGRAMS[name].on_cuda)


def test_the_table_names_functions_that_exist(record: Record) -> None:
    source = (ROOT / "tests/programs/mistakes.py").read_text()
    assert all(f"def {program.function}(" in source for program in PROGRAMS.values())
