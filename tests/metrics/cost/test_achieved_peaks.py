"""What a machine achieves, by a made-up clock and kernels whose times are available."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.libraries import count_cpus
from deepprof.metrics.cost.achieved_peaks import (
    NumpyKernels,
    PeakTrial,
    TorchKernels,
    read_cpu_name,
    read_last_cache,
    run_trials,
    summarise_trials,
)
from deepprof.metrics.cost.roofs import RateType


class FakeKernels:
    """Kernels that move the clock: a product takes a nanosecond for each 1000 FLOP, every second run twice as long."""

    device_name, threads, description, types = "fake", 2, "made up", ("float32", "tf32")

    def __init__(self) -> None:
        self.now_ns, self.calls = 0, 0
        self.prepared: list[tuple[str, int]] = []

    def clock_ns(self) -> int:
        return self.now_ns

    def array_nbytes(self) -> int:
        return 4_000

    def _take(self, ns: int) -> Callable[[], object]:
        def run() -> None:
            self.calls += 1
            self.now_ns += ns * (2 if self.calls % 2 else 1)

        return run

    def prepare_product(self, size: int, dtype: RateType) -> Callable[[], object]:
        self.prepared.append((dtype, size))
        return self._take(2 * size**3 // 1000)

    def prepare_triad(self, elements: int, dtype: RateType) -> Callable[[], object]:
        self.prepared.append((dtype, elements))
        return self._take(120)


def test_the_best_run_counts() -> None:
    kernels = FakeKernels()
    trials = list(run_trials(kernels, ["float32"], 1e-3, sizes=[100], clock_ns=kernels.clock_ns))
    product, triad = trials
    assert (product.work, product.size, product.amount, product.best_ns) == ("product", 100, 2_000_000, 2_000)
    assert product.per_s == pytest.approx(1e12)
    assert (triad.work, triad.size, triad.amount, triad.best_ns) == ("triad", 1_000, 12_000, 120)
    assert triad.per_s == pytest.approx(100e9)
    assert product.runs >= 3


def test_the_time_is_shared() -> None:
    kernels = FakeKernels()
    list(run_trials(kernels, ["float32"], 1e-3, sizes=[100], clock_ns=kernels.clock_ns))
    assert kernels.now_ns < 1_200_000  # a millisecond, and what the last runs take beyond it


def test_what_would_take_too_long_is_left_out() -> None:
    kernels = FakeKernels()
    trials = list(run_trials(kernels, ["float32", "tf32"], 1e-4, sizes=[100, 200, 400], clock_ns=kernels.clock_ns))
    # A seventh of 100 µs is 14.3 µs: 100 uses 2 (8 times that is 16), so that no larger one is tried.
    assert [(trial.dtype, trial.size) for trial in trials if trial.work == "product"] == [
        ("float32", 100),
        ("tf32", 100),
    ]


def test_a_clock_that_stands_still_ends() -> None:
    (product, triad) = run_trials(FakeKernels(), ["float32"], 1.0, sizes=[10], clock_ns=lambda: 7)
    assert (product.best_ns, product.runs, triad.runs) == (1, 1000, 1000)


def test_peaks_are_the_best_of_each_type() -> None:
    trials = [
        PeakTrial("product", "float32", 10, 4_000, 2, 3),
        PeakTrial("product", "float32", 20, 9_000, 3, 3),
        PeakTrial("product", "float32", 30, 1_000, 1, 3),
        PeakTrial("product", "tf32", 10, 8_000, 1, 3),
        PeakTrial("triad", "float32", 10, 120, 1, 3),
    ]
    peaks = summarise_trials(trials, FakeKernels(), "2026-11-27")
    assert peaks.vector_flops_per_s == {"float32": 3e12}
    assert peaks.matrix_flops_per_s == {"tf32": 8e12}
    assert peaks.memory_nbytes_per_s == {"memory": 120e9}
    assert (peaks.name, peaks.threads, peaks.is_measured) == ("fake", 2, True)
    assert "2026-11-27" in peaks.source


def test_numpy_computes_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = NumpyKernels()
    assert kernels.array_nbytes() >= 1 << 20
    monkeypatch.setattr(kernels, "array_nbytes", lambda: 4_000_000)
    trials = list(run_trials(kernels, ["float64"], 0.001, sizes=[8]))
    assert [trial.work for trial in trials] == ["product", "triad"]
    peaks = summarise_trials(trials, kernels, "today")
    assert peaks.vector_flops_per_s["float64"] > 0
    assert peaks.memory_nbytes_per_s["memory"] > 0
    assert peaks.threads == count_cpus()
    assert peaks.name


def test_the_triad_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from deepprof.metrics.cost import achieved_peaks

    monkeypatch.setattr(achieved_peaks, "CHUNK", 7)
    out, summand, factor = np.zeros(50), np.arange(50.0), np.full(50, 2.0)
    achieved_peaks._add_multiple(out, summand, factor)
    assert out.tolist() == (np.arange(50.0) + 6).tolist()


def test_the_processor_and_its_cache(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Made Up 3000\nmodel name\t: other\n")
    assert read_cpu_name(tmp_path / "cpuinfo") == "Made Up 3000"
    assert read_cpu_name(tmp_path / "missing") == "CPU"
    for index, text in enumerate(("48K\n", "2048K\n", "36M\n", "odd")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(text)
    assert read_last_cache(tmp_path) == 36 << 20
    assert read_last_cache(tmp_path / "none") == 0


@pytest.mark.gpu
def test_torch_on_a_device() -> None:
    try:
        kernels = TorchKernels()
    except UsageError as error:
        pytest.skip(str(error))
    trials = list(run_trials(kernels, ["float16", "tf32"], 1.0, sizes=[256, 1024]))
    peaks = summarise_trials(trials, kernels, "today")
    assert set(peaks.matrix_flops_per_s) == {"float16", "tf32"}
    assert peaks.memory_nbytes_per_s["memory"] > 1e9
