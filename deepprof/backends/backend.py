"""What every backend offers, and what they share: inputs to run with, timing, messages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from msgspec import Struct

from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.models.backend_profile import BackendProfile
from deepprof.collectors.models.graph import TensorSpec

BACKENDS: Mapping[str, str] = {
    "onnxruntime": "deepprof.backends.onnxruntime:OnnxRuntime",
    "openvino": "deepprof.backends.openvino:OpenVino",
    "tensorrt": "deepprof.backends.tensorrt:TensorRt",
}
LARGEST_INPUTS_NBYTES = 16 * 1024**3
REASON_CHARS = 200  # of a backend's own message
PLACES = re.compile(r"(Exception from|Check '.*?' failed at) \S+:\d+:|\[ONNXRuntimeError\] : \d+ : \w+ : ")


class RunOptions(Struct, frozen=True):
    """How a model is run: `inputs` are its tensors by name.

    `dtype` is the type to compute in, None for what the backend chooses. `warmup` runs are not timed, `runs` are.
    `threads` is None for the backend's own choice.
    """

    inputs: Mapping[str, TensorSpec]
    dtype: str | None = None
    runs: int = 20
    warmup: int = 5
    threads: int | None = None

    @property
    def batch(self) -> int:
        """The first dimension of the first input, 1 where there is none."""
        shape = next((spec.shape for spec in self.inputs.values()), ())
        return shape[0] if shape else 1


class Backend(Protocol):
    """A library that runs models."""

    name: str

    def find_problem(self) -> str | None:
        """Return why it cannot be used here and what to do, None where it can."""

    def profile(self, path: Path, options: RunOptions) -> BackendProfile:
        """Run a model and return what its layers needed.

        Raises `TraceError` for a model that the backend cannot build or run, with its reason, and `UsageError` for
        options that it does not have.
        """
        ...


def load_backend(name: str) -> Backend:
    """Return the backend of a name of `BACKENDS`. Raises `UsageError` where it cannot be used here."""
    module, _, kind = BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(module), kind)()
    problem = backend.find_problem()
    if problem is not None:
        raise UsageError(f"--backend {name}: {problem}")
    return backend


def draw_inputs(inputs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """Return arrays to run a model with: numbers from 0 to 1, truths, or integers that are 0, valid as indices."""
    import numpy as np

    if sum(spec.nbytes for spec in inputs.values()) > LARGEST_INPUTS_NBYTES:
        raise UsageError("the model's inputs would take more than 16 GiB; give a smaller --batch or --shape")
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for name, spec in inputs.items():
        if spec.dtype in {"float16", "float32", "float64"}:
            arrays[name] = random.random(spec.shape, dtype=np.float32).astype(spec.dtype)
        elif spec.dtype == "bool":
            arrays[name] = np.ones(spec.shape, bool)
        elif spec.dtype.removeprefix("u") in {"int8", "int16", "int32", "int64"}:
            arrays[name] = np.zeros(spec.shape, spec.dtype)
        else:
            raise UsageError(f"input {name}: no inputs of type {spec.dtype} can be made; export it with float32")
    return arrays


def time_runs(run: Callable[[], object], runs: int, average: Callable[[list[int]], float] = median) -> int:
    """Return the average time of `runs` calls in nanoseconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return round(average(times))


def refuse(path: Path, backend: str, action: str, error: BaseException) -> TraceError:
    """Return the error of a model that a backend cannot take, with the backend's reason on one line, shortened."""
    reason = " ".join(PLACES.sub("", str(error)).split()) or type(error).__name__
    shown = reason if len(reason) <= REASON_CHARS else f"{reason[: REASON_CHARS - 1]}…"
    return TraceError(path, f"{backend} cannot {action} it: {shown}", "try another --backend, or export it anew")


def name_cpu() -> str:
    """Return the name of this machine's processor."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine() or "CPU"
