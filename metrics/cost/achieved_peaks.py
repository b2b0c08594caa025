"""What a machine achieves at most: products of matrices of several sizes, and a triad over arrays beyond its caches."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from deepprof.collectors.errors import UsageError
from deepprof.libraries import count_cpus
from deepprof.metrics.cost.roofs import MEMORY, SHORTEST_KERNEL_NS, DevicePeaks, RateType

PeakWork = Literal["product", "triad"]
CPU_TYPES: tuple[RateType, ...] = ("float32", "float64")  # what numpy's library multiplies; others it does in a loop
CUDA_TYPES: tuple[RateType, ...] = ("float32", "tf32", "float16", "bfloat16", "float64")
SIZES = (256, 512, 1024, 2048, 4096, 8192)  # of square matrices
CHUNK = 1 << 14  # elements of the triad that are done at once: its intermediate stays in a core's cache
CACHES = 4  # times the last level's size that each array of the triad has
SMALLEST_ARRAY, LARGEST_ARRAY = 64 << 20, 1 << 30
MEMORY_PARTS = 16  # each array uses at most this part of the machine's memory
LEAST_RUNS, MOST_RUNS = 3, 1000
NEXT_SIZE = 8  # times as long as the size before takes the next one
TRIAD_ITEM = 4  # bytes of an element
TRIAD_ARRAYS = 3  # two are read, one is written; what a cache reads before it writes is not counted


class PeakTrial(Struct, frozen=True):
    """The best of several runs: `amount` FLOP or bytes in `best_ns`; `size` is of a matrix's side or an array."""

    work: PeakWork
    dtype: RateType
    size: int
    amount: int
    best_ns: int
    runs: int

    @property
    def per_s(self) -> float:
        """The FLOP or bytes of a second."""
        return self.amount / self.best_ns * 1e9


class PeakKernels(Protocol):
    """What is timed: each call prepares operands and returns a function that works once and is done when it returns."""

    device_name: str
    threads: int | None
    description: str
    types: tuple[RateType, ...]

    def prepare_product(self, size: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a product of two square matrices of `size` rows."""

    def prepare_triad(self, elements: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a = b + s · c over arrays of `elements`."""

    def array_nbytes(self) -> int:
        """Return how large each array of the triad must be."""


def run_trials(
    kernels: PeakKernels,
    types: Sequence[RateType],
    seconds: float,
    *,
    sizes: Sequence[int] = SIZES,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Iterator[PeakTrial]:
    """Yield a trial of every size of product in every type, and one of the triad, in about `seconds` together.

    A larger product is left out once a run of the last one lasted longer than its own part of the time.
    """
    share_ns = round(seconds * 1e9 / (len(types) * len(sizes) + 1))
    for dtype in types:
        for size in sizes:
            best_ns, runs = _repeat(kernels.prepare_product(size, dtype), share_ns, clock_ns)
            yield PeakTrial("product", dtype, size, 2 * size**3, best_ns, runs)
            if best_ns * NEXT_SIZE > share_ns:
                break
    elements = kernels.array_nbytes() // TRIAD_ITEM
    best_ns, runs = _repeat(kernels.prepare_triad(elements, "float32"), share_ns, clock_ns)
    yield PeakTrial("triad", "float32", elements, TRIAD_ARRAYS * TRIAD_ITEM * elements, best_ns, runs)


def _repeat(run: Callable[[], object], share_ns: int, clock_ns: Callable[[], int]) -> tuple[int, int]:
    """Run once unmeasured, then as often as the time allows; return the best time (≥ 1) and the number of runs."""
    run()
    best_ns, runs, begin_ns = 1 << 62, 0, clock_ns()
    while True:
        before_ns = clock_ns()
        run()
        after_ns = clock_ns()
        best_ns, runs = min(best_ns, max(after_ns - before_ns, 1)), runs + 1
        if runs >= MOST_RUNS or (runs >= LEAST_RUNS and after_ns - begin_ns >= share_ns):
            return best_ns, runs


def summarise_trials(trials: Sequence[PeakTrial], kernels: PeakKernels, when: str) -> DevicePeaks:
    """Return the best of all trials as the peaks of the device.

    A GPU's rates are those of its matrix units where its library uses them: for all types but float32 and float64.
    """
    products: dict[RateType, float] = {}
    for trial in trials:
        if trial.work == "product":
            products[trial.dtype] = max(products.get(trial.dtype, 0.0), trial.per_s)
    plain = {dtype: rate for dtype, rate in products.items() if dtype in CPU_TYPES}
    memory = max((trial.per_s for trial in trials if trial.work == "triad"), default=None)
    return DevicePeaks(
        kernels.device_name,
        f"measured on {when}: the best of products of matrices and of a triad, {kernels.description}",
        vector_flops_per_s=plain,
        matrix_flops_per_s={dtype: rate for dtype, rate in products.items() if dtype not in plain},
        memory_nbytes_per_s={} if memory is None else {MEMORY: memory},
        threads=kernels.threads,
        is_measured=True,
        shortest_kernel_ns=0 if kernels.threads else SHORTEST_KERNEL_NS,
    )


class NumpyKernels:
    """The kernels on the CPU, through numpy: the product by its library's threads, the triad by as many of ours."""

    types = CPU_TYPES

    def __init__(self) -> None:
        self.device_name = read_cpu_name(Path("/proc/cpuinfo"))
        self.threads: int | None = count_cpus()
        self.description = f"numpy on {self.threads} threads"
        self._pool = ThreadPoolExecutor(self.threads)

    def array_nbytes(self) -> int:
        """Return four times the last level of cache, at least 64 MiB and at most a sixteenth of the memory."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        wanted = max(SMALLEST_ARRAY, CACHES * read_last_cache(Path("/sys/devices/system/cpu/cpu0/cache")))
        return min(wanted, LARGEST_ARRAY, memory // MEMORY_PARTS)

    def prepare_product(self, size: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a product of two square matrices."""
        import numpy as np

        left, right = (np.full((size, size), value, dtype) for value in (0.5, 0.25))
        out = np.empty_like(left)
        return lambda: np.matmul(left, right, out=out)

    def prepare_triad(self, elements: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a = b + s · c, in pieces whose product stays in the cache, a section for every thread."""
        import numpy as np

        arrays = [np.full(elements, value, dtype) for value in (0.0, 1.0, 2.0)]
        parts = [np.array_split(array, self.threads or 1) for array in arrays]
        return lambda: list(self._pool.map(_add_multiple, *parts))


def _add_multiple(out: Any, summand: Any, factor: Any) -> None:
    """Write `summand` + 3 · `factor` to `out`, piece by piece."""
    import numpy as np

    piece = np.empty(CHUNK, out.dtype)
    for first in range(0, len(out), CHUNK):
        here = slice(first, first + CHUNK)
        product = np.multiply(factor[here], 3, out=piece[: len(out[here])])
        np.add(summand[here], product, out=out[here])


class TorchKernels:
    """The kernels on the first CUDA or ROCm device, through torch; raises `UsageError` where there is none."""

    types = CUDA_TYPES
    threads: int | None = None

    def __init__(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise UsageError("--device cuda needs torch; pip install torch")
        import torch

        if not torch.cuda.is_available():
            raise UsageError("--device cuda: torch finds no such device; run it on the machine that has one")
        self.torch: Any = torch
        self.device_name = str(torch.cuda.get_device_name(0))
        self.description = f"torch {torch.__version__}"

    def array_nbytes(self) -> int:
        """Return the largest array: no cache of a device is a quarter of it."""
        return min(LARGEST_ARRAY, int(self.torch.cuda.get_device_properties(0).total_memory) // MEMORY_PARTS)

    def prepare_product(self, size: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a product of two square matrices; float32 is multiplied as tf32 only for the type `tf32`."""
        torch = self.torch
        kind = getattr(torch, "float32" if dtype == "tf32" else dtype)
        left, right = (torch.full((size, size), value, dtype=kind, device="cuda") for value in (0.5, 0.25))
        out = torch.empty_like(left)

        def run() -> None:
            before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            try:
                torch.matmul(left, right, out=out)
                torch.cuda.synchronize()
            finally:
                torch.backends.cuda.matmul.allow_tf32 = before

        return run

    def prepare_triad(self, elements: int, dtype: RateType) -> Callable[[], object]:
        """Prepare a = b + s · c in one kernel."""
        torch = self.torch
        kind = getattr(torch, dtype)
        out, summand, factor = (torch.full((elements,), value, dtype=kind, device="cuda") for value in (0.0, 1.0, 2.0))

        def run() -> None:
            torch.add(summand, factor, alpha=3, out=out)
            torch.cuda.synchronize()

        return run


def read_cpu_name(path: Path) -> str:
    """Return what `/proc/cpuinfo` calls the processor, `CPU` where it states nothing."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "CPU"
    names = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(filter(None, names), "CPU")[:200]


def read_last_cache(folder: Path) -> int:
    """Return the bytes of the largest cache that Linux names in `folder`, 0 where it names none."""
    sizes = [0]
    for path in folder.glob("index*/size"):
        digits, unit = (text := path.read_text(encoding="ascii").strip())[:-1], text[-1:]
        if digits.isdecimal() and unit in {"K", "M"}:
            sizes.append(int(digits) << (10 if unit == "K" else 20))
    return max(sizes)
