"""Which framework a trace comes from, so that advice names the user's own tools."""

from __future__ import annotations

from typing import Literal

from deepprof.collectors.trace import Trace

Framework = Literal["pytorch", "jax", "tensorflow", "other"]

# Names of kernels, operators and ranges that only one of them writes; the first match wins. Torch before JAX: XLA runs
# beneath both TensorFlow and JAX, and a program may use several.
SIGNS: tuple[tuple[Framework, str], ...] = (
    ("pytorch", r"^aten::|at::native|c10::|^ProfilerStep#|Optimizer\.step#|^torch/|[/\\]torch[/\\]|autograd::"),
    (
        "tensorflow",
        r"tensorflow::|Eigen::internal|_GPU_DT_\w+_kernel$|^tf_|[/\\]tensorflow[/\\]|^(?:Resource)?Apply(?:Adam|GradientDescent|Momentum)",
    ),
    (
        "jax",
        r"^(?:PjRt|PjitFunction|jit_|jit\()|[/\\]jax[/\\]|PjRtStreamExecutor|^XlaModule|^(?:loop|input)_(?:\w+_)?fusion|^wrapped_\w+$|^gemm_fusion_",
    ),
)
FORMATS: tuple[tuple[str, Framework], ...] = (("kineto", "pytorch"), ("nsys-jax", "jax"), ("xplane", "jax"))


def framework_of(trace: Trace) -> Framework:
    """Return the framework whose names the trace holds, or that most likely wrote its format."""
    named = named_framework(trace)
    written = (framework for prefix, framework in FORMATS if trace.format.startswith(prefix))
    return named if named != "other" else next(written, "other")


def named_framework(trace: Trace) -> Framework:
    """Return the framework whose names the trace holds, `other` where it contains none."""
    return next((framework for framework, pattern in SIGNS if trace.names.str.contains(pattern).any()), "other")


def advise(trace: Trace, general: str, **special: str) -> str:
    """Return the general advice, followed by the advice in `special` for the trace's framework, if any."""
    more = special.get(framework_of(trace))
    return f"{general} {more}" if more else general
