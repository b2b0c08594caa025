"""What was not searched for because the recording lacks the records that would show it, and how to record them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from deepprof.collectors.trace import Trace

# How the recorder of a format is made to record allocations; other formats hold none.
ALLOCATIONS: Mapping[str, str] = MappingProxyType({"kineto": "torch.profiler records them with profile_memory=True"})


def find_unexamined(trace: Trace) -> Iterator[str]:
    """Yield a sentence on each kind of loss that this recording cannot show but another one by its recorder could."""
    advice = ALLOCATIONS.get(trace.format)
    if advice and not trace.memory_events.height:
        yield f"memory that no iteration gives back, for no allocation was recorded; {advice}"
