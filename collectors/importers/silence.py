"""Why a trace has no records of a device: the program used none, or the work on one was not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.plurals import counted

if TYPE_CHECKING:
    import polars as pl

# Calls that put work on a device: known ones of CUDA's runtime and driver and of HIP, and similar ones of others.
STARTING = r"Launch|Mem(?:ory)?(?:cpy|Copy|set|Fill)|Enqueue"
KNOWN = r"^(?:cuda|cu|hip)[A-Z]"
# Operators and ranges that only programs on a GPU have: NCCL's, those for streams, and optimizers written in CUDA.
OF_GPU_JOB = (
    r"^nccl:|^aten::(?:record_stream$|\w+_cuda$|(?:cudnn|miopen)_(?:convolution|batch_norm|rnn|grid|affine|ctc)\w*)"
    r"|^Optimizer\.step#Fused(?:Adam|LAMB|SGD)\b"
)


def explain_silence(calls: pl.Series, advice: str) -> str:
    """Return why a trace whose runtime calls have these names (String) has no records of a device.

    `advice` is how to record with the device; it is included if calls put work on one.
    """
    started = count_starting(calls)
    if started:
        asked = f"{counted(started, 'call')} put work on a device whose records are missing"
        return f"{asked}; {advice}, and with no other profiler at the same time"
    if not len(calls):
        return "recorded on the CPU only"
    if calls.str.contains(KNOWN).all():
        return "the program put no work on a device"
    return f"{counted(len(calls), 'runtime call')}, and nothing of what they may have started"


def count_starting(calls: pl.Series) -> int:
    """Return how many of the calls with these names (String) put work on a device."""
    return int(calls.str.contains(STARTING).sum())
