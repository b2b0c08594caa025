"""Which names show a stage, and which are only like one that does."""

from __future__ import annotations

import polars as pl
import pytest

from deepprof.metrics.annotation.stage_names import name_stages

FUNCTIONS = [
    ("training_step", "train.py", None),
    ("compute_loss", "trainer.py", "loss"),
    ("forward", "model.py", "forward"),
    ("forward", "torch/nn/modules/conv.py", "forward"),
    ("forward", "torch/nn/modules/loss.py", "loss module"),
    ("cross_entropy", "torch/nn/functional.py", "loss module"),
    ("relu", "torch/nn/functional.py", None),
    ("eval", "torch/nn/modules/module.py", None),
    ("_fn", "torch/_dynamo/eval_frame.py", None),
    ("validation_step", "site-packages/lightning/trainer.py", "evaluation"),
    ("evaluate", "/usr/lib/python3/site-packages/transformers/trainer.py", "evaluation"),
    ("backward", "torch/_tensor.py", "backward"),
    ("_engine_run_backward", "C:\\env\\torch\\autograd\\graph.py", "backward"),
    ("step", "torch/optim/adamw.py", "optimizer"),
    ("step", "train.py", None),
    ("zero_grad", "train.py", "optimizer"),
    ("clip_grad_norm_", "torch/nn/utils/clip_grad.py", "optimizer"),
    ("unscale_", "torch/amp/grad_scaler.py", "optimizer"),
    ("__next__", "torch/utils/data/dataloader.py", "data loading"),
    ("__getitem__", "my/dataset.py", "data loading"),
    ("__getitem__", "torch/nn/modules/container.py", None),
    ("save", "torch/serialization.py", "checkpoint"),
    ("load", "torch/serialization.py", None),
    ("save_checkpoint", "train.py", "checkpoint"),
    ("checkpoint", "torch/utils/checkpoint.py", None),
    ("all_reduce", "torch/distributed/distributed_c10d.py", "communication"),
    ("get_rank", "torch/distributed/distributed_c10d.py", None),
    ("dumps", "json/__init__.py", None),
    ("_maybe_log_save_evaluate", "site-packages/transformers/trainer.py", None),
    ("get_log_probs", "train.py", None),
    ("log_metrics", "train.py", "other"),
    ("broadcast_to", "model.py", None),
]
RANGES = [
    ("## forward ##", "forward"),
    ("Forward", "forward"),
    ("ForwardPass", "forward"),
    ("DistributedDataParallel.forward", "forward"),
    ("forward_backward", None),
    ("straightforward", None),
    ("forwarding", None),
    ("loss.backward", "backward"),
    ("loss", "loss"),
    ("lossless", None),
    ("Backward", "backward"),
    ("Optimizer.step#SGD.step", "optimizer"),
    ("Optimizer.zero_grad#Adam.zero_grad", "optimizer"),
    ("optimizer_step", "optimizer"),
    ("sgd_backward", None),
    ("lambda_layer", None),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data loading"),
    ("wait_for_training_batch", "data loading"),
    ("next_batch", "data loading"),
    ("batch_norm", None),
    ("H2D", "data loading"),
    ("allreduce", "communication"),
    ("backward allreduce", "communication"),
    ("val_epoch", "evaluation"),
    ("validate_forward", "evaluation"),
    ("value", None),
    ("metrics:publish", "other"),
    ("catalog", None),
    ("log_softmax", None),
    ("broadcast_in_dim", None),
    ("broadcast", "communication"),
    ("broadcast parameters", "communication"),
    ("Data Loading", "data loading"),
    ("zero-grad", "optimizer"),
    ("save checkpoint", "checkpoint"),
    ("backward-params-all-reduce", "communication"),
    ("val loop", "evaluation"),
    ("ProfilerStep#12", None),
    ("", None),
]
# As PyTorch's emit_nvtx and RPD write operators: as ranges.
OPERATOR_RANGES = [
    ("add_, seq = 12", None, False),
    ("log, seq = 3", None, False),
    ("aten::log", None, False),
    ("aten::broadcast_to, op_id = 5", None, False),
    ("aten::nll_loss_forward", "loss", False),
    ("nll_loss, seq = 3, sizes = [[8, 10], [8]]", "loss", False),
    ("aten::nll_loss_backward", "backward", False),
    ("aten::_foreach_add_", "optimizer", False),
    ("MulBackward0, seq = 3, op_id = 4", "backward", True),
    ("autograd::engine::evaluate_function: MmBackward0", "backward", True),
]
OPERATORS = [
    ("autograd::engine::evaluate_function: AddmmBackward0", "backward", True),
    ("CudnnConvolutionBackward", "backward", True),
    ("aten::nll_loss_forward", "loss", False),
    ("aten::_fused_adamw_", "optimizer", False),
    ("aten::_foreach_add_", "optimizer", False),
    ("aten::linear", None, False),
    ("aten::log", None, False),
    ("c10d::allreduce_", "communication", True),
    ("nccl:all_reduce", "communication", True),
    ("forward", "forward", True),  # older recorders have ranges among their operators
]


def stages_of(kind: str, names: list[str], file: list[str | None] | None = None) -> pl.DataFrame:
    frames = pl.DataFrame({"kind": [kind] * len(names), "name": names, "file": file or [None] * len(names)})
    return name_stages(frames.cast(pl.String))


def test_functions_tell_by_file_and_words() -> None:
    found = stages_of("python", [name for name, *_ in FUNCTIONS], [file for _, file, _ in FUNCTIONS])
    told = {(name, file): stage for (name, file, _), stage in zip(FUNCTIONS, found["stage"], strict=True)}
    assert told == {(name, file): stage for name, file, stage in FUNCTIONS}
    assert found["certain"].all()


@pytest.mark.parametrize("kind", ["range", "scope"])
def test_ranges_tell_by_words_alone(kind: str) -> None:
    found = stages_of(kind, [name for name, _ in RANGES])
    assert dict(zip([name for name, _ in RANGES], found["stage"], strict=True)) == dict(RANGES)


def test_ranges_that_are_operators_tell_what_operators_do() -> None:
    found = stages_of("range", [name for name, *_ in OPERATOR_RANGES])
    assert found.rows() == [(stage, certain) for _, stage, certain in OPERATOR_RANGES]


def test_a_logarithm_of_a_compiled_program_is_no_stage() -> None:
    assert stages_of("scope", ["log", "jit(log)"])["stage"].to_list() == [None, None]


def test_operators_tell_little_for_certain() -> None:
    found = stages_of("operator", [name for name, *_ in OPERATORS])
    assert found.rows() == [(stage, certain) for _, stage, certain in OPERATORS]


def test_modules_are_the_forward_pass_but_for_losses() -> None:
    names = ["Linear_0", "CrossEntropyLoss_1", "MyCriterion", "LossyCompression_0"]
    assert stages_of("module", names)["stage"].to_list() == ["forward", "loss module", "loss module", "forward"]


def test_scopes_of_differentiated_functions_are_the_forward_pass() -> None:
    assert stages_of("scope", ["jvp(ResNet)", "jit(step)"])["stage"].to_list() == ["forward", None]


def test_kernels_tell_only_collectives_and_optimizers() -> None:
    names = [
        "ncclDevKernel_AllReduce_Sum_f32",
        "void multi_tensor_apply_kernel<AdamFunctor>",
        "split_embedding_backward_adagrad",
        "sgemm",
    ]
    assert stages_of("kernel", names)["stage"].to_list() == ["communication", "optimizer", None, None]


def test_nothing_has_no_stage() -> None:
    assert stages_of("range", []).height == 0
