"""The bytes that an NVIDIA GPU reads from its memory and writes to it, as its counters state. Checked on an H200.

CUPTI counts for one context: copies of inputs and results are in it, work of other processes is not. Floating-point
operations are not counted, since the counters take those of tensor cores for others (PRoof).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from deepprof.backends.cuda_context import CudaContext, UncountedError
from deepprof.backends.cupti_calls import CuptiLibrary, find_cupti
from deepprof.backends.range_profiler import RangeProfiler

METRICS = ("dram__bytes.sum",)  # both ways together: the names of either differ between chips


class DramCounter:
    """Counts what moves between a device and its memory while a block runs.

    `reason` states why nothing was counted, None where it was; counting never makes the block fail.
    """

    def __init__(self, device: int = 0) -> None:
        self._device = device
        self._nbytes: float | None = None
        self.reason: str | None = None

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count within the block; everything is released after it, also where it raises."""
        with ExitStack() as held:
            profiler = self._start(held)
            yield
            if profiler is not None:
                self._read(profiler)

    def count_nbytes(self, runs: int) -> int | None:
        """Return the bytes of one of `runs` runs that were counted, None where nothing was."""
        return None if self._nbytes is None else round(self._nbytes / runs)

    def _start(self, held: ExitStack) -> RangeProfiler | None:
        """Return the profiler with its range begun, None with a reason where it cannot be had."""
        try:
            context = CudaContext(held, self._device)
            profiler = RangeProfiler(held, CuptiLibrary(find_cupti()), context, METRICS)
            profiler.start()
        except UncountedError as error:
            held.close()
            self.reason = str(error)
            return None
        return profiler

    def _read(self, profiler: RangeProfiler) -> None:
        try:
            self._nbytes = sum(profiler.read())
        except UncountedError as error:
            self.reason = str(error)
