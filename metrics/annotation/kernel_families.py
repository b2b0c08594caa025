"""What the names of kernels alone tell of the stage that they ran in: how much speaks against each one.

Some kernels run in one pass only (`bgrad`, `multi_tensor_apply`). Matrix products tell it by which operands they
transpose, as a hint: forward passes mostly use `tn`, weights' gradients `nt`. Most element-wise kernels tell nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.host import OPTIMIZER

Int8s = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]

# The first family whose pattern fits is a kernel's own.
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer": OPTIMIZER,
        "backward": r"(?i)back_?ward|bwd|updateGradInput|dgrad|wgrad|bgrad|bprop|wrw|cutlassB\b|fmha_bwd"
        r"|grad_?(?:input|weight|bias|gamma|beta)|gradinput"
        r"|_bw_|bn_bw|unrolled_backward|sum_and_scatter|dx_kernel|dwdb|_dkdv|_dq\b",
        "loss": r"(?i)Criterion_updateOutput|nll_?loss|cross_?entropy|mse_loss|bce_|binary_cross_entropy"
        r"|softmax_xent|ctc_loss|l1_loss",
        "plain convolution": r"(?i)winograd|fprop",  # also run for the gradients of inputs
        "forward": r"(?i)forward|[_:]fwd|fwd_|_fw_|bn_fw|collect_statistics|RowwiseMoments|vectorized_layer_norm"
        r"|cutlassF\b|flash_fwd|fused_dropout|embedding_kernel|indexSelect(?:Large|Small)Index",
        "plain product": r"(?i)gemm\w*_tn[_\W]|_tn_(?:align|\d)|_tn$|Cijk_Alik_Bljk",
        "weight product": r"(?i)gemm\w*_nt[_\W]|_nt_(?:align|\d)|_nt$|Cijk_Ailk_Bjlk",
        "product": r"(?i)gemm|gemv|cutlass|xmma|cijk_|matmul|conv|winograd|attention|fmha|splitk",
        "update": r"(?i)addcdiv|addcmul|lerp|foreach",
        "norm": r"(?i)norm|softmax|pool|dropout|gelu|silu|relu|rope|rotary",
    }
)
NO_FAMILY = "other"
FAMILY_NAMES = (*FAMILIES, NO_FAMILY, "copy in", "copy", "loop over parameters")
_IMPOSSIBLE = 4.0  # of stages that kernels alone never tell: entered only beside such ones
_ORDER = ("data loading", "forward", "loss", "backward", "optimizer")
# How much speaks against each of `_ORDER`, in units of one step from a stage to the one that usually follows.
_AGAINST: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "optimizer": (5, 5, 5, 5, 0),
        "backward": (4, 4, 3, 0, 4),
        "loss": (4, 2, 0, 2.5, 5),
        "forward": (3, 0, 1, 2, 4),
        "plain convolution": (3, 0, 2, 0.5, 4),
        "plain product": (3, 0, 2, 0.7, 4),
        "weight product": (3, 0.7, 2, 0, 4),
        "product": (3, 0, 2, 0, 4),
        "update": (3, 2, 2, 2, 0),
        "norm": (2, 0, 0.7, 0.1, 3),
        NO_FAMILY: (1, 0, 0.5, 0, 0.5),
        "copy in": (0, 1.2, 2, 2, 2),
        "copy": (0.6, 0, 0, 0, 0.2),
        "loop over parameters": (1, 0.3, 0.5, 0.1, 0),
    }
)


def find_families(names: pl.Series) -> Int8s:
    """Return for each name of a kernel the number of its family in `FAMILY_NAMES`."""
    name = pl.col("name").fill_null("")
    chosen = pl.coalesce(
        *(pl.when(name.str.contains(pattern)).then(pl.lit(family)) for family, pattern in FAMILIES.items()),
        pl.lit(NO_FAMILY),
    )
    numbers = {family: number for number, family in enumerate(FAMILY_NAMES)}
    found = pl.DataFrame({"name": names.rename("name")}).select(chosen.replace_strict(numbers, return_dtype=pl.Int8()))
    return found.to_series().to_numpy()


def weigh_families() -> Floats:
    """Return how much speaks against each stage, an array of `FAMILY_NAMES` × `STAGES`."""
    costs = np.full((len(FAMILY_NAMES), len(STAGES)), _IMPOSSIBLE, np.float32)
    places = [STAGES.index(stage) for stage in _ORDER]
    for number, family in enumerate(FAMILY_NAMES):
        costs[number, places] = _AGAINST[family]
    for stage in ("evaluation", "checkpoint", "other"):  # goes on where it was
        costs[:, STAGES.index(stage)] = 0.5
    return costs
