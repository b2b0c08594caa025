"""Which stage contexts are part of: by what they are in, and by which pass of autograd they are."""

from __future__ import annotations

import polars as pl
import pytest

from deepprof.metrics.annotation.event_stages import judge_contexts, judge_slices
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.contexts.tree import build_tree
from tests.metrics.contexts.test_slices import op
from tests.tables import event, launch, make_trace, span

Frame = tuple[str, str, str | None]
TRAIN: Frame = ("python", "training_step", "train.py")
MODEL: Frame = ("module", "Net_0", None)
LINEAR: Frame = ("operator", "aten::linear", None)


def stage_of(*path: Frame, backward: int | None = None) -> str | None:
    """Return the stage of the last of contexts within each other; a backward pass begins at number `backward`."""
    frames = [("all", "all", None), *path]
    contexts = pl.DataFrame(
        {
            "parent": [None, *range(len(path))],
            "depth": range(len(frames)),
            "kind": [kind for kind, *_ in frames],
            "name": [name for _, name, _ in frames],
            "file": pl.Series([file for *_, file in frames], dtype=pl.String),
            "backward": [backward is not None and number > backward for number in range(len(frames))],
        }
    )
    number = int(judge_contexts(contexts).stage[-1])
    return STAGES[number] if number >= 0 else None


def named(name: str, kind: str = "range") -> Frame:
    return kind, name, None


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ([TRAIN], None),
        ([TRAIN, LINEAR], None),
        ([TRAIN, MODEL, LINEAR], "forward"),
        ([("python", "compute_loss", "train.py"), MODEL, LINEAR], "forward"),
        ([("python", "compute_loss", "train.py"), LINEAR], "loss"),
        ([MODEL, named("aten::cross_entropy_loss", "operator")], "loss"),
        ([named("PerceptualLoss_0", "module"), MODEL, LINEAR], "loss"),
        ([MODEL, named("aten::_foreach_add_", "operator")], "forward"),
        ([named("Optimizer.step#SGD.step"), LINEAR], "optimizer"),
        ([named("Optimizer.step#LBFGS.step"), MODEL, LINEAR], "forward"),
        ([named("Optimizer.step#LBFGS.step"), named("aten::mse_loss", "operator")], "optimizer"),
        ([named("validate"), MODEL, LINEAR], "evaluation"),
        ([named("validate"), named("loss")], "evaluation"),
        ([named("save_checkpoint"), LINEAR], "checkpoint"),
        ([named("enumerate(DataLoader)#x"), ("python", "forward", "augment.py"), LINEAR], "data loading"),
        ([named("backward"), MODEL, LINEAR], "backward"),
        ([named("backward"), named("aten::_foreach_add_", "operator")], "optimizer"),
        ([MODEL, named("c10d::allreduce_", "operator")], "communication"),
        ([named("metrics"), MODEL], "forward"),
        ([MODEL, named("zero_grad")], "optimizer"),
    ],
)
def test_a_context_is_part_of(path: list[Frame], stage: str | None) -> None:
    assert stage_of(*path) == stage


def test_an_operator_is_no_less_certain_than_the_range_that_says_the_same() -> None:
    contexts = pl.DataFrame(
        {
            "parent": [None, 0, 1],
            "depth": [0, 1, 2],
            "kind": ["all", "range", "operator"],
            "name": ["all", "Optimizer.step#SGD.step", "aten::_foreach_add_"],
            "file": pl.Series([None] * 3, dtype=pl.String),
            "backward": [False] * 3,
        }
    )
    judged = judge_contexts(contexts)
    assert [STAGES[each] for each in judged.stage[1:]] == ["optimizer", "optimizer"]
    assert judged.certain[1:].tolist() == [True, True]


def test_backward_operators_leave_the_stage_of_their_forward_one() -> None:
    node = named("autograd::engine::evaluate_function: LinearBackward0", "operator")
    assert stage_of(MODEL, LINEAR, node, named("aten::mm", "operator"), backward=2) == "backward"
    assert stage_of(named("loss"), LINEAR, node, backward=2) == "backward"
    assert stage_of(named("validate"), LINEAR, node, backward=2) == "evaluation"


def test_a_forward_pass_that_is_run_again_is_part_of_the_backward_one() -> None:
    node = named("autograd::engine::evaluate_function: CheckpointFunctionBackward", "operator")
    assert stage_of(MODEL, named("CheckpointFunction", "operator"), node, MODEL, LINEAR, backward=2) == "backward"


def test_operators_that_went_backward_are_forward_though_others_of_their_name_are_not() -> None:
    names = ("k", "aten::mul", "autograd::engine::evaluate_function: MulBackward0", "launch")
    host = [
        op(1, 0, 10, 1, sequence=5, forward_thread=0),
        launch(1, 2, 3, 3),
        op(2, 20, 30, 2, sequence=5, forward_thread=1),
        op(1, 40, 50, 1),
    ]
    tree = build_tree(make_trace([event(0, 5, 9, correlation=1)], host, names=names))
    slices = judge_slices(tree, judge_contexts(tree.contexts))
    told = [STAGES[each] if each >= 0 else None for each in slices.stage.tolist()]
    assert told == ["forward", "forward", None, "backward"]  # the operator, its call, the other operator, the node
    assert slices.certain.tolist()[:2] == [True, True]


def test_a_trace_without_contexts_has_no_stage() -> None:
    tree = build_tree(make_trace([], [], [span(0, 0, 5)]))
    assert judge_contexts(tree.contexts).stage.tolist() == [-1, -1, -1, -1, -1, -1]
