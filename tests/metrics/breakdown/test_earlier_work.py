"""Work from before the recording: what a device waits for in a file that begins while its queue is filled."""

from __future__ import annotations

import pytest

from deepprof.analysis import Analysis, analyze
from deepprof.render.answer import describe_answer
from tests.deepprof.diagnosis.loops import Did, Job, Work

SIDE, LENGTH_US = 9, 500_000
FIRST = Work(0, 4, -5, name="index_", stream=SIDE)
AFTER = [Work(463_000 + 90 * i, 463_080 + 90 * i, 100 + i, name=f"kernel_{i}_") for i in range(40)]
COPY = Did("hipMemcpyWithStream", 400, 463_000)


def analysis(*work: Work, host: tuple[Did, ...] = (COPY,)) -> Analysis:
    return analyze([Job(LENGTH_US, [*work], host, iterations=1).trace()])


def loss(found: Analysis) -> str:
    return list(describe_answer(found))[1]


def test_the_call_in_which_the_host_waits_for_earlier_work_is_named() -> None:
    line = loss(analysis(FIRST, *AFTER))
    assert "most likely for work from before the recording that is not in the file" in line
    assert "while the host waits in hipMemcpyWithStream. What to do: start the recording earlier" in line


@pytest.mark.parametrize("host", [(), (Did("hipMemcpyWithStream", 400, 100_000),)])
def test_no_call_is_named_where_the_host_waits_only_for_a_part_of_it(host: tuple[Did, ...]) -> None:
    line = loss(analysis(FIRST, *AFTER, host=host))
    assert "work from before the recording that is not in the file. What to do" in line


def test_work_behind_recorded_work_of_its_stream_waits_for_nothing_earlier() -> None:
    before = Work(10, 14, 5, name="first_")
    found = analysis(FIRST, before, *AFTER)
    assert found.answer.earlier is None
    assert "before the recording" not in loss(found)


def test_work_that_is_launched_late_waits_for_its_launch() -> None:
    late = [Work(each.start, each.end, each.start - 5, name=each.name) for each in AFTER]
    assert analysis(FIRST, *late, host=()).answer.earlier is None
