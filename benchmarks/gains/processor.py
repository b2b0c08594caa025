"""What this processor multiplies at most on one thread, through torch, which has bfloat16 where numpy has not."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from deepprof.metrics.cost.achieved_peaks import NumpyKernels, run_trials, summarise_trials
from deepprof.metrics.cost.roofs import DevicePeaks, RateType

TYPES: tuple[RateType, ...] = ("float32", "float64", "bfloat16")
SIZES = (256, 512, 1024)
SECONDS = 8.0


class TorchProcessorKernels(NumpyKernels):
    """The kernels of torch on one thread of the processor; the triad stays numpy's."""

    types = TYPES

    def __init__(self) -> None:
        super().__init__()
        torch.set_num_threads(1)
        self.threads, self.description = 1, f"torch {torch.__version__} on one thread"

    def prepare_product(self, size: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a product of two square matrices."""
        left, right = (torch.full((size, size), value, dtype=getattr(torch, dtype)) for value in (0.5, 0.25))
        out = torch.empty_like(left)
        return lambda: torch.matmul(left, right, out=out)


def measure_peaks() -> DevicePeaks:
    """Return the rates by the processor's time, not by the clock: other work on the machine shall not count."""
    kernels = TorchProcessorKernels()
    trials = list(run_trials(kernels, TYPES, SECONDS, sizes=SIZES, clock_ns=time.process_time_ns))
    return summarise_trials(trials, kernels, "the spot")
