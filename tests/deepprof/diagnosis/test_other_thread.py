"""`other-thread`: a launching thread that waits for a lock, a queue or an engine."""

from __future__ import annotations

from deepprof.diagnosis.rules.host_bound import host_bound
from deepprof.diagnosis.rules.other_thread import other_thread
from tests.deepprof.diagnosis.loops import START_US, Did, Job, compute

LENGTH = 100_000
WORK, GET = "statistics.py(4): collect", "queue.py(154): get"


def job(*did: Did) -> Job:
    """Return iterations of which the host is silent for 40 %."""
    return Job(LENGTH, [compute(60_000)], did)


def test_what_the_other_thread_runs_is_named() -> None:
    (found,) = job(Did(WORK, 60_000, 99_900, "python", thread=9)).found(other_thread)
    assert (found.severity, found.confidence) == ("warning", 1.0)
    assert found.title == f"The launching thread waits for another thread, which runs {WORK}"
    assert found.location == {"frame": WORK}
    assert found.headroom_ns_per_iteration == (40_000 - START_US) * 1_000
    assert f"{WORK} should hold locks" in found.advice


def test_the_lock_is_named_where_the_other_thread_was_not_recorded() -> None:
    (found,) = job(Did("pthread_mutex_lock", 60_000, 99_900, "other")).found(other_thread)
    assert found.title == "The launching thread waits for another thread"
    assert found.location == {"call": "pthread_mutex_lock"}
    assert "in pthread_mutex_lock; what that one does was not recorded." in found.summary
    assert "Record the stacks of all threads" in found.advice


def test_both_are_named_where_both_are_known() -> None:
    both = (Did(GET, 60_000, 99_900, "python"), Did("aten::mm", 61_000, 99_000, "op", thread=9))
    (found,) = job(*both).found(other_thread)
    assert found.evidence["waits_in"] == GET
    assert found.evidence["runs"] == "aten::mm"
    assert found.summary.endswith(f"waits for another thread in {GET}, which runs aten::mm.")


def test_a_thread_that_calls_backward_waits_for_the_engines() -> None:
    (found,) = job(Did("## backward ##", 60_000, 99_900, "range")).found(other_thread)
    assert "PyTorch computes gradients in threads of its own" in found.advice


def test_an_engine_that_is_recorded_shows_itself_when_it_is_waited_for() -> None:
    engine = Did("aten::mm", 61_000, 62_000, "op", thread=9)
    assert job(Did("## backward ##", 60_000, 99_900, "range"), engine).found(other_thread) == []


def test_a_launching_thread_that_works_or_shows_nothing_is_not_its_matter() -> None:
    works = [Did("train.py(3): log", 60_000, 99_900, "python"), Did(WORK, 60_000, 99_900, "python", thread=9)]
    for did in (works, []):
        assert job(*did).found(other_thread) == []
        assert len(job(*did).found(host_bound)) == 1


def test_short_and_empty_input() -> None:
    assert Job(LENGTH, [compute(95_000)], [Did(WORK, 95_000, 99_900, "python", thread=9)]).found(other_thread) == []
    assert Job(LENGTH, [compute(60_000)], iterations=1).found(other_thread) == []
