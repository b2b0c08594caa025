"""Stages of real and of simulated jobs whose truth is hidden: as many are right as the design requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.stage_jobs import KINDS
from benchmarks.accuracy.stages import score_file, score_made
from tests.widening import slow_unless

FROM_OPERATORS, FROM_KERNELS = 0.97, 0.90
# Traces with functions of modules, or with the lines of a script.
FUNCTIONS = ("tb-resnet50-nw0-c", "tb-resnet50-nw4-d", "tl-resnet-ckpt")
EVALUATED = (
    0.94  # of the kernels of jobs that are evaluated now and then: loading for an evaluation is not told from it
)


@pytest.mark.parametrize("name", slow_unless(lambda name: name != "tb-resnet50-nw4-d", FUNCTIONS))
def test_stages_of_real_traces(traces: Path, name: str) -> None:
    (path,) = (path for path in (traces / name).iterdir() if ".json" in path.name)
    check(path)


def test_stages_of_a_real_trace_of_a_network_on_two_devices(more_traces: Path) -> None:
    check(more_traces / "tl-ddp-resnet18-nopool" / "train_resnet18.json.gz")


def check(path: Path) -> None:
    score = score_file(path)
    assert score is not None
    assert score.kernels > 2_000
    operators, kernels = score.shares
    assert operators >= FROM_OPERATORS
    assert kernels >= FROM_KERNELS


@pytest.mark.parametrize("kind", KINDS)
def test_stages_of_simulated_jobs(kind: str) -> None:
    least = EVALUATED if kind.startswith("evaluation") else FROM_OPERATORS
    operators, kernels = score_made((kind, 0)).shares
    assert operators >= least
    assert kernels >= min(least, FROM_OPERATORS)
