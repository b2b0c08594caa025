"""Free sections between blocks, against a map of every byte; and what the allocator took in vain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import MEMORY_EVENTS, SEGMENTS, Trace
from deepprof.metrics.annotation.event_stages import TraceStages
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.segments import measure_fragmentation, measure_refused
from deepprof.metrics.memory.use import MemoryUse
from tests.tables import Row, make_trace, table

SIZE, APART = 16, 40  # of a segment, and from the begin of one to that of the next


def memory_of(trace: Trace) -> DeviceMemory:
    nothing = np.zeros(0, np.int8)
    return DeviceMemory(TraceAnnotation(trace, None, TraceStages(nothing, nothing, None), None), 0, None)


def held_trace(places: dict[int, list[int]]) -> Trace:
    """Return a trace with a segment at every place, in which the listed bytes are blocks of one byte."""
    used = [place + byte for place, bytes_of in places.items() for byte in bytes_of]
    segments: list[Row] = [
        {"time_ns": 0, "device": 0, "address": place, "nbytes": SIZE, "stream": 0} for place in places
    ]
    held = SIZE * len(places)
    events: list[Row] = [
        {"time_ns": 1, "device": 0, "address": at, "nbytes": 1, "allocated_nbytes": k + 1, "reserved_nbytes": held}
        for k, at in enumerate(used)
    ]
    trace, kept = make_trace(), len(segments) + len(events)
    return replace(
        trace,
        memory_events=table(events, MEMORY_EVENTS),
        segments=table(segments, SEGMENTS),
        accounting=replace(trace.accounting, read=kept, kept=kept),
    )


@given(st.lists(st.sets(st.integers(0, SIZE - 1)), min_size=1, max_size=5).filter(any))
def test_free_stretches_are_those_of_a_map(drawn: list[set[int]]) -> None:
    places = {APART * (number + 1): sorted(used) for number, used in enumerate(drawn)}
    found = measure_fragmentation(memory_of(held_trace(places)), 2)
    runs, split = [0], 0
    for used in drawn:
        free = "".join(" " if byte in used else "x" for byte in range(SIZE))
        runs += map(len, free.split())
        split += free.count("x") if used else 0
    assert found is not None
    assert (found.split_nbytes, found.largest_nbytes) == (split, max(runs))
    assert found.free_nbytes == SIZE * len(drawn) - sum(map(len, drawn))


def test_what_is_given_back_is_no_segment() -> None:
    trace = held_trace({40: [0], 80: []})
    back: list[Row] = [{"time_ns": 1, "device": 0, "address": 80, "nbytes": -SIZE, "stream": 0}]
    segments = trace.segments.vstack(table(back, SEGMENTS))
    kept = trace.accounting.kept + 1
    trace = replace(trace, segments=segments, accounting=replace(trace.accounting, read=kept, kept=kept))
    less = trace.memory_events.with_columns(reserved_nbytes=trace.memory_events["reserved_nbytes"] - SIZE)
    found = measure_fragmentation(memory_of(replace(trace, memory_events=less)), 2)
    assert found is not None
    assert (found.reserved_nbytes, found.split_nbytes, found.largest_nbytes) == (SIZE, 15, 15)


def test_addresses_that_no_device_has_say_nothing() -> None:
    found = measure_fragmentation(memory_of(held_trace({2**63: [0, 9]})), 2)
    assert found is not None
    assert (found.allocated_nbytes, found.split_nbytes, found.largest_nbytes) == (2, None, None)


def test_nothing_is_known_without_what_the_allocator_holds() -> None:
    assert measure_fragmentation(memory_of(make_trace())) is None
    bare = held_trace({40: [0]})
    bare = replace(bare, memory_events=bare.memory_events.with_columns(reserved_nbytes=None).cast(dict(MEMORY_EVENTS)))  # type: ignore[arg-type]
    assert measure_fragmentation(memory_of(bare)) is None


@pytest.mark.parametrize(
    ("allocated", "reserved", "since", "refused"),
    [
        ([60, 20, 50], [60, 60, 90], 0, 30),
        ([60, 40, 70], [60, 60, 90], 0, 0),
        ([60, 20, 50], [60, 60, 90], 3, 0),
        ([60, 20, 50], [60, 60, 60], 0, 0),
        ([60], [60], 0, 0),
    ],
    ids=["enough was free", "not enough", "in the warm-up", "nothing was taken", "one event"],
)
def test_what_was_taken_although_enough_was_free(
    allocated: list[int], reserved: list[int], since: int, refused: int
) -> None:
    time = np.arange(len(allocated))
    assert measure_refused(MemoryUse(time, time, np.array(allocated), np.array(reserved), True), since) == refused
