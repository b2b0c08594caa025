"""Rules of attention: `scaled_dot_product_attention` in all its forms, flash attention of PyTorch, Tri Dao and AITER.

Fused attention counts its two matrix products, of which causal attention does half; its softmax is not counted, as in
the papers. Where queries and keys are unlike many, the causal masks of PyTorch begin at the first key, those of flash
attention end at the last. The backward pass does two and a half times as much: it computes the scores again, and
multiplies four more times. Sequences of different lengths packed into one tensor have no rule: their lengths are not
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from deepprof.metrics.cost.framework.operator_call import Operand, OperatorCall, Rule, UnfitOperandsError
from deepprof.metrics.cost.operation_cost import OperationCost, count_attention

NO_WINDOW = {"", "-1"}  # values of a window's side that limit nothing


class _AttentionForm(Struct, frozen=True):
    """Where an operator has its operands.

    `query` is the place of the query, which key and value follow. `causal` is the place of the truth value `is_causal`,
    None: never causal. `heads_first`: the sides are batch, heads, sequence, size; else batch, sequence, heads, size.
    `window` is the place of the first side of a window, `packed` that of lengths of packed sequences. A backward one
    is given the gradient of the result at the place `gradient`. `is_first`: its causal mask begins at the first key.
    """

    causal: int | None
    query: int = 0
    heads_first: bool = True
    window: int | None = None
    packed: int | None = None
    gradient: int | None = None
    is_first: bool = False


def _attend(call: OperatorCall, form: _AttentionForm) -> OperationCost:
    operands = [call.tensor(form.query + number) for number in range(3)]
    shapes = [call.shape(form.query + number) for number in range(3)]
    if len(shapes[0]) < 4 or _is_limited(call, form):
        raise UnfitOperandsError(f"{call.name}: the lengths of its sequences are not recorded")
    *batch, queries, size = shapes[0] if form.heads_first else _swap(shapes[0])
    *_, keys, _ = shapes[1] if form.heads_first else _swap(shapes[1])
    causal = form.causal is not None and (call.flag(form.causal) or _window(call, form)[1] == "0")
    sizes = (size, shapes[2][-1], prod(batch))
    if causal and form.is_first:  # queries beyond the keys see all of these, keys beyond the queries are not seen
        before = count_attention(max(queries - keys, 0), keys, *sizes)
        flops = before + count_attention(min(queries, keys), min(queries, keys), *sizes, is_causal=True)
    else:
        flops = count_attention(queries, keys, *sizes, is_causal=causal)
    result = Operand((), operands[0].dtype, prod(batch) * queries * shapes[2][-1]).nbytes
    inputs = sum(operand.nbytes for operand in operands)
    dtype = operands[0].dtype
    if form.gradient is None:
        return OperationCost(flops, inputs + _mask_nbytes(call, form), result, flops, dtype)
    backward = flops * 5 // 2
    return OperationCost(backward, inputs + 2 * result, inputs, backward, dtype)  # reads the result and its gradient


def _swap(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return batch, heads, sequence, size of a shape with the sequence before the heads."""
    *batch, sequence, heads, size = shape
    return (*batch, heads, sequence, size)


def _is_limited(call: OperatorCall, form: _AttentionForm) -> bool:
    """Return whether a window or packed sequences limit what the queries see."""
    if form.packed is not None and call.is_tensor(form.packed):
        return True
    left, right = _window(call, form)
    return left not in NO_WINDOW or right not in {*NO_WINDOW, "0"}


def _window(call: OperatorCall, form: _AttentionForm) -> tuple[str, str]:
    """Return how many keys before and after its own a query sees, as recorded; on the right 0 means causal."""
    if form.window is None:
        return "", ""
    return call.operand(form.window).value, call.operand(form.window + 1).value


def _mask_nbytes(call: OperatorCall, form: _AttentionForm) -> int:
    """Return the bytes of a mask or bias, the tensor behind the value."""
    return call.operand(form.query + 3).nbytes if len(call) > form.query + 3 else 0


def _masked_rule(form: _AttentionForm) -> Rule:
    """Return the rule of an operator whose `causal` is the number of a mask: none, from the first key, to the last."""

    def rule(call: OperatorCall) -> OperationCost:
        place = form.causal or 0
        kind = call.operand(place).value
        known = {"0": "False", "1": "True", "2": "True"}.get(kind, "")
        operands = (*call.operands[:place], Operand(value=known), *call.operands[place + 1 :])
        return _attend(OperatorCall(call.name, operands), replace(form, is_first=kind == "1"))

    return rule


def _rule(form: _AttentionForm) -> Rule:
    return lambda call: _attend(call, form)


FLASH = _AttentionForm(5, heads_first=False, window=6)
FORMS: Mapping[str, _AttentionForm] = {
    "aten::scaled_dot_product_attention": _AttentionForm(5, is_first=True),
    "aten::_scaled_dot_product_flash_attention": _AttentionForm(4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _AttentionForm(4, is_first=True),
    "aten::_scaled_dot_product_efficient_attention": _AttentionForm(6, is_first=True),
    "aten::_scaled_dot_product_cudnn_attention": _AttentionForm(6, is_first=True),
    "aten::_scaled_dot_product_fused_attention_overrideable": _AttentionForm(5, is_first=True),
    "aten::_flash_attention_forward": _AttentionForm(8, heads_first=False, packed=3, window=11),
    "aten::_cudnn_attention_forward": _AttentionForm(10, packed=4, is_first=True),
    # grad_out, query, key, value, …
    "aten::_scaled_dot_product_flash_attention_backward": _AttentionForm(11, query=1, gradient=0),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _AttentionForm(7, query=1, gradient=0, is_first=True),
    "aten::_scaled_dot_product_efficient_attention_backward": _AttentionForm(11, query=1, gradient=0, is_first=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _AttentionForm(14, query=1, gradient=0, is_first=True),
    "aten::_flash_attention_backward": _AttentionForm(11, query=1, heads_first=False, packed=6, window=15, gradient=0),
    # flash-attn and AITER: q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, …
    **dict.fromkeys(("flash_attn::_flash_attn_forward", "aiter::_flash_attn_forward"), FLASH),
    **dict.fromkeys(("aiter::mha_fwd", "aiter::fmha_v3_fwd"), FLASH),
    # dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left, …
    **dict.fromkeys(
        ("flash_attn::_flash_attn_backward", "aiter::_flash_attn_backward"),
        _AttentionForm(11, query=1, heads_first=False, window=12, gradient=0),
    ),
}
MASKED: Mapping[str, _AttentionForm] = {
    "aten::_efficient_attention_forward": _AttentionForm(9, heads_first=False, packed=4),
    "aten::_efficient_attention_backward": _AttentionForm(14, query=1, heads_first=False, packed=6, gradient=0),
}
RULES: Mapping[str, Rule] = {
    **{name: _rule(form) for name, form in FORMS.items()},
    **{name: _masked_rule(form) for name, form in MASKED.items()},
}
