"""The model of torch's allocator, and what is found under it and in levels drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.caching_allocator import CachingAllocator, MemoryBlock
from benchmarks.memory_looks import LEAKS, QUIET, SLOWING, LanguageModel, count_found, look_at_training
from deepprof.metrics.memory.rises import MEMORY_GROWTH, find_rise
from tests.chance import examples

MIB = 1 << 20


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40 * MIB)), max_size=60))
def test_blocks_are_as_long_as_asked_for_and_no_segment_holds_two(calls: list[tuple[bool, int]]) -> None:
    memory, held = CachingAllocator(), list[MemoryBlock]()
    for is_release, nbytes in calls:
        if is_release and held:
            memory.free(held.pop(nbytes % len(held)))
        else:
            held.append(memory.allocate(nbytes))
        assert memory.requested == sum(block.asked for block in held)
        assert memory.allocated == sum(block.nbytes for block in held)
        assert all(0 <= block.nbytes - block.asked <= MIB + 511 for block in held)
        free = sum(nbytes for blocks in memory.free_blocks.values() for nbytes, _, _ in blocks)
        assert memory.allocated + free == memory.reserved
    for block in held:
        memory.free(block)
    assert (memory.allocated, memory.requested) == (0, 0)
    assert all(block.before is block.after is None for blocks in memory.free_blocks.values() for *_, block in blocks)


def test_segments_and_sizes_are_torchs() -> None:
    memory = CachingAllocator()
    small, large, own = (memory.allocate(nbytes) for nbytes in (1, 2 * MIB, 31 * MIB))
    assert (small.nbytes, large.nbytes, own.nbytes) == (512, 2 * MIB, 32 * MIB)  # what is left, 1 MiB, is no piece
    assert memory.reserved == (2 + 20 + 32) * MIB


@pytest.mark.parametrize("leak", [0, MIB // 8, 4 * MIB])
def test_a_leak_shows_in_requests_with_its_size_and_none_where_there_is_none(leak: int) -> None:
    blocks, requests = look_at_training(LanguageModel(layers=24, width=1024), leak)
    assert set(np.diff(requests).tolist()) == {leak}
    found, seen = find_rise(requests), find_rise(blocks)
    if not leak:
        assert found is seen is None
        return
    assert found is not None
    assert seen is not None
    assert found.per_value == leak
    assert seen.per_value == pytest.approx(leak, rel=0.1)
    assert found.grown < MEMORY_GROWTH * requests[0], "which alone would not be reported"


@pytest.mark.parametrize("name", QUIET)
def test_levels_without_a_leak_have_none(name: str) -> None:
    assert count_found(QUIET[name], 66, 200, seed=11) <= 0.01


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_found_in_time(name: str) -> None:
    assert count_found(LEAKS[name], 200, 20, seed=12) == 1


@pytest.mark.parametrize("name", SLOWING)
def test_a_rise_that_slows_down_is_seldom_a_leak(name: str) -> None:
    """It is five sixths of them where nothing is asked of the second half but a fifth of the growth."""
    assert count_found(SLOWING[name], 66, 200, seed=13) <= 0.2
