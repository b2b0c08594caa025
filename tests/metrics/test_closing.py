"""The last iteration of a short capture ends with its step marker."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.timeline import lay_out
from deepprof.metrics.host import read_host
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import main_sequence
from deepprof.metrics.trace_loops import close_last
from tests.deepprof.diagnosis.loops import MAIN, Did, Job, Work

LENGTH = 1_000
WORK = [Work(100 * i, 100 * i + 50, 100 * i - 5) for i in range(6)]


def closed(iterations: int, *, name: str = "ProfilerStep#1", until: float = 960) -> Loop:
    """Return a job of kernels up to 550 µs in iterations of 1,000 µs, each in a range up to `until`, with its parts."""
    loop, trace = Job(LENGTH, WORK, [Did(name, -20, until, "range")], iterations=iterations).build()
    host = read_host(trace)
    found = close_last(loop, trace, main_sequence(trace, 0, MAIN, host), host)
    return with_parts(found, trace, lay_out(trace, 0, host.launches))


@pytest.mark.parametrize("iterations", [2, 3, 5])
def test_the_last_step_lasts_until_its_marker_ends(iterations: int) -> None:
    loop = closed(iterations)
    assert loop.usual.height == iterations
    last = loop.table.row(-1, named=True)
    assert (last["iteration_ns"], last["interval_ns"]) == (960_000, 410_000)
    assert (last["busy_ns"], last["idle_ns"]) == (300_000, 660_000)


def test_what_begins_after_the_last_kernel_is_of_the_last_step_too() -> None:
    work = [*WORK, Work(700, 750, 690, activity="memcpy", stream=MAIN + 1)]
    loop, trace = Job(LENGTH, work, [Did("ProfilerStep#1", -20, 960, "range")], iterations=3).build()
    host = read_host(trace)
    table = close_last(loop, trace, main_sequence(trace, 0, MAIN, host), host).iterations
    assert table["events"].to_list() == [7, 7, 7]
    assert table["busy_ns"].to_list() == [350_000] * 3


def test_all_parts_of_the_last_step_add_up_beyond_the_last_event() -> None:
    loop = closed(3)
    from deepprof.metrics.breakdown.parts import PART_NAMES

    last = loop.table.row(-1, named=True)
    assert sum(last[part] for part in PART_NAMES) == last["iteration_ns"]


@pytest.mark.parametrize(
    ("iterations", "name", "until"),
    [
        (9, "ProfilerStep#1", 960),  # enough of them without it
        (1, "ProfilerStep#1", 960),  # nothing to compare it with
        (3, "forward", 960),  # no marker of steps
        (3, "ProfilerStep#1", 900),  # without the loading that the others end with
        (3, "ProfilerStep#1", 1_110),  # with the profiler's end
        (3, "ProfilerStep#1", 3_000),  # of something else: three times as long
    ],
)
def test_otherwise_the_last_iteration_has_no_time(iterations: int, name: str, until: float) -> None:
    assert closed(iterations, name=name, until=until).table["iteration_ns"][-1] is None


def test_a_last_iteration_that_is_cut_off_is_left_alone() -> None:
    loop, trace = Job(LENGTH, WORK, [Did("ProfilerStep#1", -20, 900, "range")], iterations=3).build()
    host = read_host(trace)
    cut = loop.iterations.with_columns(complete=loop.iterations["index"] < 2)
    found = close_last(replace(loop, iterations=cut), trace, main_sequence(trace, 0, MAIN, host), host)
    assert found.iterations.equals(cut)
