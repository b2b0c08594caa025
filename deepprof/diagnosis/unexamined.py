"""What was not looked for because the recording lacks the records that would show it, and how to record them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from deepprof.collectors.trace import Trace

__all__ = ["find_unexamined"]

# How a format's recorder is asked for allocations; no other keeps any.
ALLOCATIONS: Mapping[str, str] = MappingProxyType({"kineto": "torch.profiler records them with profile_memory=True"})


def find_unexamined(trace: Trace) -> Iterator[str]:
    """Yield a sentence on each kind of loss that could not show in this recording, but in another of its recorder."""
    advice = ALLOCATIONS.get(trace.format)
    if advice and not trace.memory_events.height:
        yield f"memory that no iteration gives back, for no allocation was recorded; {advice}"
