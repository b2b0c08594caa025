"""The rule of every operator that has one, by its name; what an operator costs that only arranges others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from deepprof.metrics.cost.framework import (
    aten_attention,
    aten_convolutions,
    aten_indexing,
    aten_norms,
    aten_pointwise,
    aten_products,
    aten_recurrent,
    aten_reductions,
    fused_kernels,
    optimizer_steps,
)
from deepprof.metrics.cost.framework.fused_kernels import estimate, is_fused
from deepprof.metrics.cost.framework.operator_call import OperatorCall, Rule
from deepprof.metrics.cost.operation_cost import OperationCost

_FAMILIES = (
    *(aten_products, aten_attention, aten_convolutions, aten_norms, aten_pointwise, aten_reductions),
    *(aten_indexing, aten_recurrent, optimizer_steps, fused_kernels),
)
RULES: Mapping[str, Rule] = MappingProxyType(
    {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}
)

# Operators that make views or bring memory: they compute nothing and move nothing.
_FREE = (
    "_nnpack_available _reshape_alias _unsafe_view alias as_strided as_strided_ broadcast_tensors can_cast chunk "
    "cudnn_is_acceptable detach detach_ diagonal empty empty_like empty_strided expand expand_as "
    "is_floating_point is_nonzero is_pinned item lift_fresh movedim narrow new_empty new_empty_strided permute "
    "promote_types real record_stream resize_ resize_as_ resolve_conj resolve_neg result_type select set_ size "
    "slice split split_with_sizes squeeze squeeze_ swapaxes sym_size t t_ transpose transpose_ unbind unfold "
    "unsafe_chunk unsafe_split unsqueeze unsqueeze_ view view_as"
)
# Operators that leave all of their work to operators which the profiler records inside of them. Some have a rule, too,
# which does not know all forms of their arguments: texts, such as a padding of "same", are not recorded.
_ARRANGING = (
    "_batch_norm_impl_index _convolution _convolution_mode _scaled_dot_product_attention_math _to_copy "
    "adaptive_avg_pool2d avg_pool1d batch_norm clone constant_pad_nd contiguous conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution cosine_similarity cross_entropy_loss dropout "
    "dropout_ dstack einsum embedding feature_dropout flatten full full_like group_norm gru gru_cell hstack "
    "instance_norm layer_norm linear log_softmax lstm lstm_cell matmul max_pool1d max_pool2d max_pool3d "
    "multi_head_attention new_full new_ones new_tensor new_zeros nll_loss nll_loss2d nll_loss_nd normalize "
    "one_hot ones ones_like pad rand rand_like randint randint_like randn randn_like repeat repeat_interleave "
    "reshape rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell scalar_tensor scaled_dot_product_attention "
    "softmax stack tensordot tile to type_as unflatten vstack zeros zeros_like"
)
FREE = frozenset(f"aten::{name}" for name in _FREE.split())
ARRANGING = frozenset(f"aten::{name}" for name in _ARRANGING.split())
# What PyTorch's own autograd records around the operators of a node; a node in Python or C++ has no number.
NODE = re.compile(r"autograd::engine::evaluate_function: .*|torch::autograd::AccumulateGrad|\w+Backward\d+")
MAX_COUNT = 2**62  # what a column of integers holds, and a sum of some


def cost_of_call(call: OperatorCall) -> OperationCost | None:
    """Return what one call costs; None where its operator has no rule, or its operands are not as the rule has them.

    Its bytes are those of tensors whose type is recorded: see `OperatorCall.has_sizes`.
    """
    rule = RULES.get(call.name) or (estimate if is_fused(call.name) else None)
    if rule is None:
        return None
    try:
        cost = rule(call)
    except (ValueError, IndexError, ZeroDivisionError):  # shapes and arguments that contradict each other
        return None
    return cost if max(cost.flops, cost.nbytes) < MAX_COUNT and min(cost.flops, cost.nbytes) >= 0 else None


def arranges(name: str) -> bool:
    """Return whether the operator `name` does nothing itself but call others, which are recorded inside of it."""
    return name in ARRANGING or NODE.fullmatch(name) is not None


def is_free(name: str) -> bool:
    """Return whether the operator `name` computes and moves nothing by itself."""
    return name in FREE
