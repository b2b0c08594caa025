"""`late-submission`: work launched on an idle device begins milliseconds late, though it waits for nothing."""

from __future__ import annotations

from deepprof.diagnosis.rules.late_submission import late_submission
from deepprof.diagnosis.rules.unseen_work import unseen_work
from tests.deepprof.diagnosis.loops import START_US, Did, Job, Work

LENGTH = 20_000
WAIT = "cudaStreamSynchronize"


def handing_over(late_us: float, *, prompt: bool = True, waits: bool = True) -> Job:
    """Return iterations of two bursts of kernels, of which the second is handed over so late; the host waits for it."""
    first = [Work(i * 500, i * 500 + 499, i * 10 - START_US * (1 if prompt else 80)) for i in range(6)]
    begin = 4_000 + late_us
    second = [Work(begin + i * 500, begin + i * 500 + 499, 4_000 + i * 10 - START_US) for i in range(6)]
    calls = [Did(WAIT, 100, 3_010), Did(WAIT, 4_070, begin + 3_010)]
    return Job(LENGTH, [*first, *second], calls if waits else [])


def test_work_that_waits_for_nothing_on_an_idle_device_is_named() -> None:
    (found,) = handing_over(2_500).found(late_submission)
    assert (found.severity, found.title) == ("warning", "The driver hands launched work over to the device late")
    assert found.evidence["waits_per_iteration"] == 1
    assert 2_480_000 < found.evidence["median_wait_ns"] <= 2_500_000  # type: ignore[operator]
    assert handing_over(2_500).found(unseen_work) == []


def test_it_is_named_though_the_host_goes_on() -> None:
    assert len(handing_over(2_500, waits=False).found(late_submission)) == 1


def test_where_no_work_begins_soon_only_the_hosts_wait_shows_it() -> None:
    assert len(handing_over(2_500, prompt=False).found(late_submission)) == 1
    assert handing_over(2_500, prompt=False, waits=False).found(late_submission) == []


def test_work_that_begins_at_once_is_silent() -> None:
    assert handing_over(0).found(late_submission) == []


def test_longer_waits_are_not_the_drivers() -> None:
    assert handing_over(6_000).found(late_submission) == []


def test_a_filled_queue_that_stands_still_is_not_the_drivers() -> None:
    works, at = [Work(0, 500, -START_US)], 500.0
    for number in range(1, 10):
        at += 1_500 if number % 2 else 1
        works.append(Work(at, at + 500, number * 10))
        at += 500
    works.append(Work(at + 1_500, at + 1_600, at))
    assert Job(LENGTH, works).found(late_submission) == []
    assert len(Job(LENGTH, works).found(unseen_work)) == 1


def test_one_event_is_no_proof() -> None:
    assert Job(LENGTH, [Work(0, 500, -START_US)], iterations=1).found(late_submission) == []
