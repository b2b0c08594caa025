"""Blocks of memory, against a walk over every event."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.trace import MEMORY_EVENTS
from deepprof.metrics.memory.block_lifetimes import BLOCKS, find_alive, pair_blocks
from tests.tables import Row, table

Block = tuple[int | None, int | None, int, int | None]  # allocation, release, size, and the row that ends it


def mark(time: int, nbytes: int | None, address: int | None = 1, device: int | None = 0, process: int = 9) -> Row:
    return {"time_ns": time, "nbytes": nbytes, "address": address, "device": device, "process": process}


def walk(events: pl.DataFrame) -> tuple[set[Block], int, int]:
    """Return all blocks, how many releases are lost, and how many are too many."""
    open_rows: dict[object, int] = {}
    seen, blocks, lost, twice = set[object](), set[Block](), 0, 0
    for row, each in enumerate(events.to_dicts()):
        place = (each["process"], each["device"], each["address"])
        if not each["nbytes"] or each["address"] is None or each["device"] is None:
            continue
        at = open_rows.pop(place, None)
        if each["nbytes"] > 0:
            if at is not None:
                blocks.add((at, None, events["nbytes"][at], row))
                lost += 1
            open_rows[place] = row
        elif at is not None:
            blocks.add((at, row, events["nbytes"][at], row))
        elif place not in seen:
            blocks.add((None, row, -each["nbytes"], row))
        else:
            twice += 1
        seen.add(place)
    return blocks | {(at, None, events["nbytes"][at], None) for at in open_rows.values()}, lost, twice


draws = st.tuples(
    st.integers(0, 20),
    st.none() | st.integers(-3, 3),
    st.sampled_from([None, 1, 2, 2**63]),
    st.sampled_from([None, -1, 0]),
    st.integers(1, 2),
)


@given(st.lists(draws, max_size=40))
def test_blocks_are_those_that_a_walk_finds(drawn: list[tuple[int, int | None, int | None, int | None, int]]) -> None:
    events = table([mark(*each) for each in drawn], MEMORY_EVENTS)
    found, (blocks, lost, twice) = pair_blocks(events), walk(events)
    columns = found.table.select("allocation", "release", "nbytes")
    assert found.table.schema == BLOCKS
    assert columns.height == len(blocks)
    assert set(columns.rows()) == {each[:3] for each in blocks}
    assert found.lost_releases == lost
    assert found.left_out.get("released-twice", 0) == twice
    of_blocks = columns["allocation"].count() + columns["release"].count()
    assert of_blocks + sum(found.left_out.values()) == events.height


@given(st.lists(draws, min_size=1, max_size=40), st.data())
def test_alive_is_what_was_allocated_and_not_released(
    drawn: list[tuple[int, int | None, int | None, int | None, int]], data: st.DataObject
) -> None:
    events = table([mark(number, *each[1:]) for number, each in enumerate(drawn)], MEMORY_EVENTS)
    row = data.draw(st.integers(0, events.height - 1))
    found = pair_blocks(events).table.filter(find_alive(row, row))
    begun = [each for each in walk(events)[0] if each[0] is None or each[0] <= row]
    alive = {each[:3] for each in begun if each[3] is None or each[3] > row}
    assert set(found.select("allocation", "release", "nbytes").rows()) == alive


def test_a_block_is_from_its_allocation_to_its_release() -> None:
    events = table([mark(5, 64), mark(7, 32, 2), mark(9, -64), mark(11, -8, 3), mark(12, 16)], MEMORY_EVENTS)
    found = pair_blocks(events)
    assert found.table.select("begin_ns", "end_ns", "address", "nbytes").rows() == [
        (None, 11, 3, 8),
        (5, 9, 1, 64),
        (7, None, 2, 32),
        (12, None, 1, 16),
    ]
    assert (found.left_out, found.lost_releases) == ({}, 0)


def test_no_events_make_no_blocks() -> None:
    found = pair_blocks(table([], MEMORY_EVENTS))
    assert (found.table.height, found.left_out, found.lost_releases) == (0, {}, 0)
