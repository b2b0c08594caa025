"""How busy a shared device is with one process and with several, and how their kernels come onto it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.sharing.devices import ABSENT_NS, find_presence, measure_device, measure_utilisation
from deepprof.metrics.sharing.losses import LOSSES, QueuedTime, measure_losses
from deepprof.metrics.sharing.repeated import Repeated
from deepprof.metrics.sharing.shared_places import SharedWork
from deepprof.metrics.sharing.shares import ShareOfDevice, judge_manner
from deepprof.metrics.sharing.work import DeviceWork, OtherWork
from deepprof.metrics.spans import NOTHING, Spans, union

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6)
US = 1000


def spans(pairs: list[tuple[int, int]]) -> Spans:
    return union(*(np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1)))


def cells(found: Spans) -> set[int]:
    return {t for a, b in zip(found.starts.tolist(), found.ends.tolist(), strict=True) for t in range(a, b)}


@given(st.lists(st.tuples(PAIRS, PAIRS), min_size=2, max_size=4))
def test_utilisation_against_a_count_of_single_nanoseconds(processes: list[tuple[list, list]]) -> None:
    works = [DeviceWork(rank, 0, spans(work), NOTHING) for rank, (work, _) in enumerate(processes)]
    present = [spans(at) for _, at in processes]
    alone, together = measure_utilisation(works, present)
    busy = set().union(*(cells(work.busy) for work in works))
    number = {t: sum(t in cells(each) for each in present) for t in range(61)}
    one, several = ({t for t, n in number.items() if (n == 1 if first else n > 1)} for first in (True, False))
    assert (alone.span_ns, alone.busy_ns) == (len(one), len(one & busy))
    assert (together.span_ns, together.busy_ns) == (len(several), len(several & busy))
    assert together.ratio == (len(several & busy) / len(several) if several else None)


def share(rank: int, losses: pl.DataFrame | None = None, manner: str = "not visible") -> ShareOfDevice:
    empty = pl.DataFrame(schema=LOSSES)
    return ShareOfDevice(
        rank=rank,
        device=0,
        pid=None,
        name=None,
        busy_ns=0,
        manner=manner,
        neighbours=(),
        losses=empty if losses is None else losses,
    )


def test_a_process_that_is_silent_for_long_is_not_there() -> None:
    gap = ABSENT_NS + 1
    work = DeviceWork(
        0, 0, spans([(0, 10), (10 + ABSENT_NS, 20 + ABSENT_NS), (20 + ABSENT_NS + gap, 30 + 2 * gap)]), NOTHING
    )
    found = find_presence(work, share(0))
    assert (found.starts.tolist(), found.ends.tolist()) == ([0, 20 + ABSENT_NS + gap], [20 + ABSENT_NS, 30 + 2 * gap])
    rows = pl.DataFrame({"iteration_ns": [40, 60]}, schema={"iteration_ns": pl.Int64()})
    paused = DeviceWork(0, 0, spans([(0, 10), (130, 140), (261, 270)]), NOTHING)
    assert find_presence(paused, share(0, rows)).starts.tolist() == [0, 261]  # 120, and 121 ns of silence
    assert find_presence(DeviceWork(0, 0, NOTHING, NOTHING), share(0)) == NOTHING


@pytest.mark.parametrize(
    ("manners", "whole"),
    [
        (("not visible", "not visible"), "not visible"),
        (("in turn", "not visible"), "in turn"),
        (("in turn", "at once"), "at once"),
    ],
)
def test_a_device_shows_what_any_of_its_processes_shows(manners: tuple[str, str], whole: str) -> None:
    works = tuple(DeviceWork(rank, 0, spans([(rank, 10)]), NOTHING) for rank in range(2))
    shares = {(rank, 0): share(rank, manner=manner) for rank, manner in enumerate(manners)}
    found = measure_device(SharedWork("GPU", works), shares)
    assert (found.manner, found.identity, len(found.processes)) == (whole, "GPU", 2)


Kernel = tuple[int, int]


def take_turns(turn_us: int, *, aside: bool) -> tuple[list[Kernel], list[Kernel]]:
    """Return the kernels of two processes that take turns; those of one use 100 µs each.

    With `aside`, the kernel that runs when a turn ends is put aside, and seems to last until the next turn is over.
    """
    kernels: tuple[list[Kernel], list[Kernel]] = ([], [])
    for number in range(40):
        mine, start = kernels[number % 2], number * turn_us
        mine += [(at * US, (at + 100) * US) for at in range(start, start + turn_us, 100)]
        if aside:
            begun = mine.pop()[0]
            mine.append((begun, begun + (turn_us + 100) * US))
    return kernels


def run_at_once() -> tuple[list[Kernel], list[Kernel]]:
    """Return kernels of 100 µs that last twice as long where the other's run: in every second millisecond."""
    a = list(at_pace(0, 20_000))
    b = [kernel for begin in range(0, 20_000, 2_000) for kernel in at_pace(begin, begin + 1_000)]
    return a, b


def at_pace(begin_us: int, until_us: int) -> Iterator[Kernel]:
    at = begin_us
    while at < until_us:
        length = 200 if at % 2_000 < 1_000 else 100
        yield at * US, (at + length) * US
        at += length


def judge(
    own: list[Kernel], other: list[Kernel], waits: Spans = NOTHING, kinds: Iterable[int] = itertools.repeat(0)
) -> str:
    start, end = (np.array([kernel[i] for kernel in own], np.int64) for i in (0, 1))
    keys = np.fromiter(kinds, np.int64, len(own))
    kernels = Repeated(start, end, np.zeros(len(own), np.int64), keys, end - start)
    rows = pl.DataFrame({"index": [0], "start_ns": [0], "iteration_ns": [int(end.max()) if len(end) else 1]})
    mine, theirs = DeviceWork(0, 0, spans(own), NOTHING), OtherWork.of([DeviceWork(1, 0, spans(other), NOTHING)])
    empty = Repeated(*(np.zeros(0, np.int64) for _ in range(5)))
    losses = measure_losses(rows, QueuedTime(waits, NOTHING, True), kernels, empty, theirs)
    return judge_manner(kernels, losses, theirs, mine)


def test_kernels_that_never_meet_take_turns() -> None:
    a, b = take_turns(2_000, aside=False)
    assert judge(a, b, spans(b)) == judge(b, a, spans(a)) == "in turn"


def test_a_kernel_that_is_put_aside_takes_turns_though_it_seems_to_run() -> None:
    a, b = take_turns(2_000, aside=True)
    assert judge(a, b) == judge(b, a) == "in turn"


def test_kernels_longer_than_a_turn_stand_still_in_turn_both_of_them() -> None:
    # As seen on an H200: turns of 2 ms, and kernels of 4 ms in both processes, each of which uses 6 to 8 ms.
    alone = [(at * US, (at + 100) * US) for at in (0, 100, 200)] + [
        (at * US, (at + 4_000) * US) for at in (1_000, 5_000, 9_000)
    ]
    together = [(20_000 * US, 26_000 * US), (26_000 * US, 34_000 * US), (40_000 * US, 42_100 * US)]
    theirs = [(22_000 * US, 28_000 * US), (28_000 * US, 34_000 * US), (40_050 * US, 42_050 * US)]
    assert judge([*alone, *together], theirs, kinds=[0, 0, 0, 1, 1, 1, 1, 1, 0]) == "in turn"


def test_kernels_that_slow_each_other_down_run_at_once() -> None:
    a, b = run_at_once()
    assert judge(a, b) == "at once"
    quick = [(at * US, (at + 100) * US) for at in range(0, 20_000, 100)]  # and where no one is slowed as well
    assert judge(quick, quick[::2]) == "at once"


def test_processes_that_are_never_in_each_others_way_show_nothing() -> None:
    a, b = take_turns(2_000, aside=False)
    assert judge(a, b) == "not visible"
    assert judge(a, []) == "not visible"
