"""Backward kernels are under the forward line that made them: networks whose graph states which that is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import deepprof
from deepprof.collectors.layers.given_layers import give_layers
from deepprof.collectors.layers.layers_file import read_layers
from deepprof.metrics.annotation.event_stages import find_stages
from deepprof.metrics.annotation.layers import find_layers
from deepprof.metrics.contexts.backward import ADDING, ENGINE
from deepprof.metrics.contexts.code_lines import find_lines
from deepprof.metrics.contexts.paths import find_nearest
from deepprof.metrics.contexts.tree import build_tree
from tests.once import make_once

ROOT = Path(__file__).parents[1]
NETWORKS = ("resnet18", "transformer", "indexed", "selected", "selecting", "unbound")
LEAST = 0.97  # of the time of backward nodes
Node = dict[str, str | int | None]


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the trace and the truth of every network, trained once in a test run."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed (pip install 'deepprof[programs]')")

    def train(folder: Path) -> None:
        command = [sys.executable, "-m", "tests.programs.networks", *NETWORKS, "-o", str(folder)]
        unseen = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=unseen)
        assert done.returncode == 0, done.stderr[-2000:]

    return make_once(tmp_path_factory, "networks", train)


def read(recordings: Path, name: str) -> tuple[deepprof.Analysis, list[Node]]:
    analysis = deepprof.analyze(deepprof.read(recordings / f"{name}.json"))
    return analysis, json.loads((recordings / f"{name}.truth.json").read_text())


@pytest.mark.parametrize("name", NETWORKS)
def test_backward_nodes_stand_under_the_module_and_the_line_that_made_them(recordings: Path, name: str) -> None:
    analysis, truth = read(recordings, name)
    (trace,) = analysis.traces
    tree = analysis.context_trees[trace.rank or 0]
    contexts, slices = tree.contexts, tree.slices
    module = find_nearest((contexts["kind"] == "module").to_numpy(), tree.parent, tree.depth)
    lines = find_lines(contexts)
    numbered = {(each["sequence"], each["node"]): each for each in truth if each["sequence"] is not None}
    adding = iter([each for each in truth if each["sequence"] is None])
    right, wrong = 0, Counter[tuple[str, object, object]]()
    names = trace.names.gather(slices.rows["name_id"])
    for row in np.flatnonzero(names.str.starts_with(ENGINE).to_numpy()).tolist():
        node, context = names[row].removeprefix(f"{ENGINE}: "), int(tree.of_slices[row])
        added = names[row] == ADDING
        true = next(adding) if added else numbered.get((slices.rows["sequence"][row], node), {})
        found = contexts["name"][int(module[context])] if module[context] >= 0 else None
        line = contexts["line"][int(lines[context])] if lines[context] >= 0 else None
        at_line = "line" not in true or true["line"] == line
        taken = int(slices.end[row] - slices.start[row])
        if found == true.get("module") and at_line:
            right += taken
        else:
            wrong[node, true.get("module"), found] += taken
    assert next(adding, None) is None, "each sum of a gradient was recorded"
    assert right >= LEAST * (right + wrong.total()) > 0
    assert dict(wrong) == {}, "by kind: what is no node of the network (the loss) stands in no module"


def test_steps_taken_one_by_one_are_a_heavy_backward_pass_and_taken_at_once_are_none(recordings: Path) -> None:
    (found,) = (each for each in read(recordings, "selecting")[0].findings if each.rule == "heavy-backward")
    assert found.severity == "warning"
    assert found.location is not None
    assert found.location["operator"] == "aten::select"
    assert str(found.location["file"]).endswith("networks.py")
    assert found.location["module"] == "Selecting_0"
    better = {each.rule for each in read(recordings, "unbound")[0].findings if each.severity != "info"}
    assert "heavy-backward" not in better


@pytest.mark.parametrize("name", NETWORKS)
def test_backward_nodes_have_the_layer_of_a_forward_pass_that_was_run_apart(recordings: Path, name: str) -> None:
    """Without functions of modules; paths and the profiler's names of modules represent each other, one to one."""
    traces = give_layers([deepprof.read(recordings / f"{name}.json")], read_layers(recordings / f"{name}.layers.json"))
    (trace,) = traces
    tree = build_tree(trace)
    layers = find_layers(trace, (), tree, find_stages(trace, (), tree))
    assert layers is not None
    assert layers.source == "operators"
    paths = layers.write_paths()
    truth: list[Node] = json.loads((recordings / f"{name}.truth.json").read_text())
    module = {(each["sequence"], each["node"]): str(each["module"]) for each in truth if each["sequence"] is not None}
    names, slices = trace.names.gather(tree.slices.rows["name_id"]), tree.slices
    pairs = Counter[tuple[str, str]]()
    for row in np.flatnonzero(names.str.starts_with(ENGINE).to_numpy() & (tree.forward >= 0)).tolist():
        node = slices.rows["sequence"][row], names[row].removeprefix(f"{ENGINE}: ")
        if node in module:
            pairs[module[node], paths[int(layers.of_slices[row])]] += int(slices.end[row] - slices.start[row])
    best = {own: max((path for each, path in pairs if each == own), key=lambda p: pairs[own, p]) for own, _ in pairs}
    right = sum(pairs[own, path] for own, path in best.items())
    assert len(set(best.values())) == len(best) > 1
    assert right >= LEAST * pairs.total() > 0
