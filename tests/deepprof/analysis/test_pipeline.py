"""The stages of an analysis: what each needs and returns, and that who needs the loops loads nothing else."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepprof
from deepprof.analysis import pipeline
from deepprof.analysis.pipeline import examine, find_loops
from deepprof.metrics.options import AnalysisOptions
from deepprof.simulation import simulate, write

LATER = ("contexts", "annotation", "cost", "kernels", "diagnosis")  # packages of the stages behind the loops
MOST_LINES = 150
LOOPS_ALONE = """
import sys
from deepprof.collectors.importers import read
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.streams import classify_streams
from deepprof.metrics.trace_loops import search_trace
trace = read(sys.argv[1])
found = search_trace(trace, classify_streams(trace, None), AnalysisOptions(), {})
print(*(int(loop.iterations["complete"].sum()) for loop in found.loops))
print(*(name for name in sys.modules if name.startswith("deepprof")))
"""
STAGES = [each for _, each in inspect.getmembers(pipeline, inspect.isfunction) if each.__module__ == pipeline.__name__]


@pytest.fixture(name="job", scope="module")
def simulated_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.json.gz"
    write(simulate("healthy"), path)
    return path


def test_the_loops_alone_load_no_later_stage(job: Path) -> None:
    run = [sys.executable, "-c", LOOPS_ALONE, str(job)]
    iterations, modules = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert iterations == "40"
    assert not [name for name in modules.split() if set(name.split(".")) & {*LATER}]


def test_the_pipeline_is_read_at_once() -> None:
    assert len(Path(pipeline.__file__).read_text().splitlines()) <= MOST_LINES
    assert examine in STAGES
    assert len(STAGES) >= 8


@pytest.mark.parametrize("stage", STAGES, ids=lambda each: each.__name__)
def test_a_stage_takes_and_returns_values_that_do_not_change(stage: object) -> None:
    assert inspect.isfunction(stage)
    named = [str(each) for each in stage.__annotations__.values()]
    assert "return" in stage.__annotations__
    assert not [each for each in named if re.search(r"\b(?:Any|list|dict|set|object|MutableMapping)\b", each)]


def test_a_stage_leaves_what_it_is_given_as_it_is(job: Path) -> None:
    trace = deepprof.read(job)
    found = find_loops(trace, pipeline.classify(trace, AnalysisOptions()), AnalysisOptions())
    before = (found.loops, [loop.anatomy for loop in found.loops], [loop.work for loop in found.loops])
    examined = examine(trace, AnalysisOptions())[1]
    assert before == (found.loops, [None] * len(found.loops), [None] * len(found.loops))
    assert all(loop.anatomy is not None and loop.work is not None for loop in examined.loops)
