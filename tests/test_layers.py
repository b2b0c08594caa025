"""Forward operators have the layer that ran them: programs whose trace states which that is, aligned to a dry run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import deepprof
from benchmarks.accuracy.stage_jobs import without
from deepprof.collectors.layers.given_layers import give_layers
from deepprof.collectors.layers.layers_file import read_layers
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.event_stages import RECORDED
from deepprof.metrics.annotation.layer_alignment import align_layers
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, annotate
from deepprof.metrics.contexts.backward import NODE
from deepprof.metrics.contexts.paths import find_nearest, measure_depths, spread
from deepprof.metrics.contexts.slices import read_slices
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.names import are_named
from tests.once import make_once

ROOT = Path(__file__).parents[1]
PROGRAMS = ("resnet18", "resnet50", "vit", "tied", "checkpoint", "reentrant", "lstm", "shared", "autocast", "micro")
MARKS = ("profiler::_record_function_enter_new", "profiler::_record_function_exit._RecordFunction")
OF_CHECKPOINTS = ("aten::detach",)
Int64s = npt.NDArray[np.int64]


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the trace and the layers of every program, trained once in a test run."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed (pip install 'deepprof[programs]')")

    def train(folder: Path) -> None:
        command = [sys.executable, "-m", "tests.programs.layered", *PROGRAMS, "-o", str(folder)]
        unseen = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=unseen)
        assert done.returncode == 0, done.stderr[-2000:]

    return make_once(tmp_path_factory, "layered", train)


@dataclass(frozen=True)
class Told:
    """What the trace of a program states: the outermost operators, the call of a module around each, and the match."""

    names: pl.Series  # of all slices
    rows: Int64s  # the rows of the layers, of all slices
    layers: pl.DataFrame
    operators: Int64s
    truth: Int64s
    again: npt.NDArray[np.bool_]  # run again in a backward pass

    def count_right(self, wanted: Int64s, columns: int) -> tuple[int, Counter[object]]:
        """Return how many operators have the path and class (and call) of the range around them, and the others."""
        right, wrong = 0, Counter[object]()
        for row in wanted.tolist():
            true = tuple(self.names[int(self.truth[row])].removeprefix("truth|").split("|"))
            place = int(self.rows[row])
            got = self.layers.select("layer", "layer_class", pl.col("call").cast(pl.String)).row(place)
            if place >= 0 and got[:columns] == true[:columns]:
                right += 1
            else:
                wrong[self.names[row], true, got if place >= 0 else None] += 1
        return right, wrong


def tell(recordings: Path, name: str) -> Told:
    trace = deepprof.read(recordings / f"{name}.json")
    layers = read_layers(recordings / f"{name}.layers.json").table
    slices = read_slices(trace)
    names = trace.names.gather(slices.rows["name_id"])
    operator = ((slices.rows["kind"] == "operator") & ~names.is_in(MARKS)).to_numpy()
    around, depth = np.maximum(slices.parent, 0), measure_depths(slices.parent)
    node = operator & are_named(trace.names, slices.rows["name_id"], NODE)
    regular = operator & ~node & names.str.contains("::").to_numpy()
    within = np.append(spread(regular, around, depth), False)[slices.parent]
    return Told(
        names,
        align_layers(slices, trace.names, layers),
        layers,
        np.flatnonzero(regular & ~within),
        find_nearest(names.str.starts_with("truth|").to_numpy(), around, depth),
        spread(node, around, depth),
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_forward_operator_has_its_layer(recordings: Path, name: str) -> None:
    told = tell(recordings, name)
    forward = told.operators[~told.again[told.operators]]
    in_model = forward[told.truth[forward] >= 0]
    right, wrong = told.count_right(in_model, 3)
    assert not wrong, wrong.most_common(12)
    assert right == len(in_model) == told.layers.height * (9 if name == "micro" else 3)
    others = np.flatnonzero(told.rows >= 0)
    others = others[(told.truth[others] < 0) & ~told.again[others]]
    assert told.names.gather(others).to_list() == []


@pytest.mark.parametrize("name", ["checkpoint", "reentrant"])
def test_what_a_checkpoint_runs_again_has_its_layer(recordings: Path, name: str) -> None:
    told = tell(recordings, name)
    again = told.operators[told.again[told.operators]]
    again = again[told.truth[again] >= 0]
    again = again[~told.names.gather(again).is_in(OF_CHECKPOINTS).to_numpy()]
    right, wrong = told.count_right(again, 2)
    assert not wrong, wrong.most_common(12)
    assert right == 3 * 4 * 6  # steps, layers, modules of a layer


REAL = (
    "more_traces/tl-ddp-resnet18-nopool/train_resnet18.json.gz",
    "traces/tl-resnet-ckpt/resnet_act_checkpoint.json.gz",
)
LEAST = 0.97


@pytest.mark.parametrize("name", REAL)
def test_a_dry_run_says_of_real_kernels_what_functions_of_modules_say(
    recordings: Path, traces: Path, name: str
) -> None:
    """Forward and backward, with these functions hidden; instances of classes and paths represent each other."""
    trace = deepprof.read(traces.parent / name)
    told = annotate_all(trace)
    (given,) = give_layers([hide_functions(trace)], read_layers(recordings / "resnet18.layers.json"))
    found = annotate_all(given)
    assert told.layers is not None
    assert found.layers is not None
    assert (told.layers.source, found.layers.source) == ("modules", "operators")
    modules, paths = told.layers.write_paths(), found.layers.write_paths()
    for stage in ("forward", "backward"):
        kernels = (told.stages.stage == STAGES.index(stage)) & (told.stages.evidence == RECORDED)
        wanted = np.flatnonzero(kernels & (told.layers.of_events > 0))
        pairs = Counter((modules[told.layers.of_events[row]], paths[found.layers.of_events[row]]) for row in wanted)
        best = {own: max((p for each, p in pairs if each == own), key=lambda p: pairs[own, p]) for own, _ in pairs}
        right = sum(pairs[own, path] for own, path in best.items())
        assert right >= LEAST * pairs.total() > 500, pairs.most_common(5)
        innermost = {
            own: path for own, path in best.items() if own.split("/")[-1].startswith(("Conv2d", "BatchNorm2d"))
        }
        assert len(set(innermost.values())) == len(innermost) == 40


def annotate_all(trace: Trace) -> TraceAnnotation:
    return annotate(trace, (), build_tree(trace))


def hide_functions(trace: Trace) -> Trace:
    kept = trace.host_events.filter(pl.col("category") != "python")
    return without(trace, host_events=kept)
