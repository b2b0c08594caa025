"""What was not searched for because the recording lacks the records that would show it, and how to record them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from deepprof.collectors.trace import Trace
from deepprof.metrics.operators import is_stand_in

# How the recorder of a format is made to record allocations; other formats hold none.
ALLOCATIONS: Mapping[str, str] = MappingProxyType(
    {
        "kineto": "torch.profiler records them with profile_memory=True",
        "torch": "torch.profiler records them with profile_memory=True",
        "cupti": "deepprof run --memory collects what is in use around the steps of optimizers",
    }
)
# The same of Python functions, or of what comes nearest where a recorder has none.
FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "kineto": "torch.profiler records them with with_stack=True",
        "nsys": "nsys profile records NVTX ranges with --trace=cuda,nvtx, and call stacks with --cudabacktrace=all",
        "nvprof": "NVTX ranges in the program serve instead",
        "rpd": "roctx ranges in the program serve instead",
        "rocprof": "roctx ranges in the program, recorded with --marker-trace, serve instead",
        "rocpd": "roctx ranges in the program, recorded with --marker-trace, serve instead",
    }
)


# The same of the shapes of operators.
SHAPES: Mapping[str, str] = MappingProxyType({"kineto": "torch.profiler records them with record_shapes=True"})


def explain_missing_lines(trace: Trace) -> str | None:
    """Return how functions are recorded, which findings could name with their lines; None where some were.

    Ranges of the user's own serve as well where the recorder has no functions.
    """
    functions = (trace.host_events["category"] == "python").any() or trace.stacks.height
    ranges = trace.format != "kineto" and (trace.annotations["side"] == "host").any()
    return None if functions or ranges else FUNCTIONS.get(trace.format.partition("-")[0])


def find_unexamined(trace: Trace) -> Iterator[str]:
    """Yield a sentence on every kind of loss that this recording cannot show but another one by its recorder could."""
    advice = ALLOCATIONS.get(trace.format)
    if advice and not trace.memory_events.height:
        yield f"memory leaks, because no allocations were recorded; {advice}"
    shapes = SHAPES.get(trace.format)
    if shapes and trace.operands.is_empty() and not is_stand_in(trace):
        yield f"products far below the device's peaks, because no shapes of operators were recorded; {shapes}"
