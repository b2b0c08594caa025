"""Packed records to tables that the daemon's door takes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.live.packets import NO_COPY
from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS, DEVICE_EVENTS
from deepprof.live.agent.conversion import device_events, find_devices
from deepprof.live.wire.decoding import decode_table, encode_table, measure_table
from tests.deepprof.live.agent.packets_made import kernels

KERNEL, MEMCPY, SYNC = 0, 1, 4


def through_the_door(activities: list[int], copies: list[int]) -> pl.DataFrame:
    """Return records with these activities and kinds of copies as the daemon reads them."""
    rows = kernels(100 * np.arange(len(activities)))
    rows["activity"], rows["copy_kind"] = activities, copies
    sent = device_events(rows, rows["start_ns"], rows["end_ns"], np.ones(len(rows), np.uint32))
    assert sent.schema == DEVICE_EVENTS
    return decode_table("device_events", measure_table("device_events", encode_table(sent)))


@pytest.mark.parametrize("copies", [[], [3], [0, 5, 9]], ids=["none", "one", "several"])
def test_kernels_mixed_with_copies_pass_the_door(copies: list[int]) -> None:
    """A null's key must be one of the dictionary's: 255 under it made the daemon refuse the whole batch."""
    activities = [MEMCPY if place in copies else KERNEL for place in range(10)]
    kinds = [0 if place in copies else NO_COPY for place in range(10)]
    table = through_the_door(activities, kinds)
    assert table["copy_kind"].to_list() == ["HtoD" if place in copies else None for place in range(10)]


@given(st.lists(st.tuples(st.integers(0, len(ACTIVITIES) - 1), st.integers(0, 255)), max_size=40))
def test_every_byte_of_a_copy_kind_passes_and_only_known_ones_are_kept(records: list[tuple[int, int]]) -> None:
    table = through_the_door([a for a, _ in records], [k for _, k in records])
    assert table["activity"].to_list() == [ACTIVITIES[a] for a, _ in records]
    assert table["copy_kind"].to_list() == [COPY_KINDS[k] if k < len(COPY_KINDS) else None for _, k in records]


def test_a_wait_is_of_the_device_on_which_something_ran_in_its_context() -> None:
    rows = kernels(100 * np.arange(7))
    rows["activity"] = [SYNC, KERNEL, SYNC, MEMCPY, KERNEL, SYNC, SYNC]
    rows["context"] = [1, 1, 2, 2, 3, 4, 1]
    rows["device"] = [0, 5, 0, 6, 0, 0, 5]
    assert find_devices(rows).tolist() == [5, 5, 6, 6, 0, 0, 5]


def test_a_context_of_several_devices_says_nothing_of_a_wait() -> None:
    rows = kernels(100 * np.arange(4))
    rows["activity"] = [SYNC, KERNEL, KERNEL, SYNC]
    rows["device"] = [0, 1, 2, 2]
    assert find_devices(rows).tolist() == [0, 1, 2, 2]
