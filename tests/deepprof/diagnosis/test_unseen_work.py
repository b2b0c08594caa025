"""`unseen-work`: queued work that waits for nothing in the trace, as next to a process that no one recorded."""

from __future__ import annotations

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.capture_incomplete import capture_incomplete
from deepprof.diagnosis.rules.unseen_work import unseen_work
from tests.deepprof.diagnosis.loops import START_US, Job, Work

LENGTH = 20_000


def taking_turns(turn_us: float = 1_500, *, stream: int = 7, skew_us: float = 0) -> list[Work]:
    """Return ten pieces of 500 µs, all launched at once; before every second one another process has its turn."""
    works, at = [Work(0, 500, -START_US - skew_us)], 500.0
    for number in range(1, 10):
        at += turn_us if number % 2 else 1
        works.append(Work(at, at + 500, number * 10 - skew_us, stream=stream if number > 5 else 7))
        at += 500
    return works


def find(works: list[Work]) -> list[Finding]:
    return Job(LENGTH, works).found(unseen_work)


def test_turns_of_another_process_are_told() -> None:
    (found,) = find(taking_turns())
    assert (found.severity, found.title) == (
        "critical",
        "Queued work waits: something that was not recorded occupies the device",
    )
    assert found.evidence["waits_per_iteration"] == 5
    assert found.evidence["median_wait_ns"] == 1_500_000
    assert found.headroom_ns_per_iteration == 7_500_000
    assert "another process" in found.summary


def test_what_is_seen_is_not_called_missing() -> None:
    assert [f.evidence.get("unknown_idle_ratio") for f in Job(LENGTH, taking_turns()).found(capture_incomplete)] == []


def test_a_device_of_its_own_is_silent() -> None:
    assert find(taking_turns(1)) == []


def test_short_waits_are_the_devices_own() -> None:
    assert find(taking_turns(90)) == []


def test_another_stream_may_be_waited_for() -> None:
    assert find(taking_turns(stream=9)) == []


def test_clocks_that_are_apart_prove_nothing() -> None:
    assert find(taking_turns(skew_us=400)) == []


def test_one_event_is_no_proof() -> None:
    assert find(taking_turns()[:1]) == []
