"""The pairs of programs by name, each with the rule that must find the mistake; this module needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAIRS", "UNMEASURED", "GainPair"]


@dataclass(frozen=True, slots=True)
class GainPair:
    """A function of `benchmarks.gains.programs`, the rule that its first program deserves, and what the second changes.

    The function takes whether the change is made, and returns what runs one iteration.
    """

    function: str
    rule: str
    change: str


PAIRS = {
    "float32-products": GainPair("train_block", "wrong-precision", "autocast to bfloat16"),
    "float64-data": GainPair("train_from_numpy", "double-precision", "float32 data and parameters"),
    "written-attention": GainPair("attend", "unfused-attention", "scaled_dot_product_attention"),
    "gated-chain": GainPair("run_gated_chain", "elementwise-chains", "torch.compile of the chain"),
    "tanh-gelu": GainPair("run_written_gelu", "elementwise-chains", "torch.compile of the chain"),
    "loop-adam": GainPair("update_parameters", "unfused-optimizer", "Adam(fused=True)"),
    "permuted-blocks": GainPair("run_permuted_blocks", "layout-conversions", "channels_last, no conversion"),
    "cast-weights": GainPair("infer_with_casts", "repeated-casts", "parameters in bfloat16"),
    "batch-norm": GainPair("infer_with_batch_norm", "normalization-bound", "batch norm folded into the convolution"),
    "indexed-table": GainPair("train_indexed_table", "embedding-bound", "index_select for [ ]"),
    "written-loss": GainPair("train_written_loss", "unfused-loss", "cross_entropy"),
    "written-norm": GainPair("run_written_norm", "elementwise-chains", "layer_norm"),
    "checkpointed": GainPair("train_checkpointed", "recomputed-forward", "every second block checkpointed"),
    "half-on-cpu": GainPair("multiply_half", "fallback-kernels", "bfloat16 for float16"),
}
UNMEASURED = {
    "padding-waste": "only a GPU: on this CPU 1,021 for 1,024 columns cost nothing",
    "small-grids": "only a GPU: operators have no grid",
    "older-attention": "only a GPU: FlashAttention has generations there",
    "unfused-dropout": "only a GPU: on a CPU drawing the numbers takes the time, fused or not",
    "low-efficiency": "no one change: shapes, layouts and types together",
    "fusion-candidates": "a remark, without a bound",
    "slowing-kernels": "no change of a program: clocks and neighbours slow kernels",
}
