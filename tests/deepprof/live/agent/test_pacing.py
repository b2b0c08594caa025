"""From everything to windows to nothing, and back: on the cost alone."""

from __future__ import annotations

import pytest

from deepprof.live.agent.pacing import CALM_S, REST_S, CostSample, Effort, Pacer, Pacing


def run(pacer: Pacer, seconds: int, *, cost: float = 0.0, begin: float = 0.0, **more: bool) -> list[bool]:
    """Let seconds pass in each of which collecting, when on, costs `cost` of a core; returns when it was on."""
    on = []
    for second in range(seconds):
        on.append(pacer.is_collecting)
        pacer.hear(begin + second + 1, CostSample(1.0, cost if pacer.is_collecting else 0.0, **more))
    return on


def test_cheap_collecting_stays_full() -> None:
    pacer = Pacer(Pacing())
    assert all(run(pacer, 1000, cost=0.01))
    assert (pacer.effort, pacer.changed, pacer.duty_ratio) == (Effort.FULL, 0, 1.0)


def test_a_peak_that_ten_seconds_bear_passes() -> None:
    pacer = Pacer(Pacing())
    run(pacer, 3, cost=0.1)
    run(pacer, 200, cost=0.001, begin=3)
    assert pacer.changed == 0


def test_dear_collecting_becomes_windows_that_are_whole() -> None:
    pacer = Pacer(Pacing(overhead_ratio=0.05, window_s=2, pause_s=8))
    on = run(pacer, 60, cost=0.1)
    assert pacer.effort is Effort.DUTY
    assert pacer.reason == "overhead"
    lengths = [len(word) for word in "".join("x" if one else " " for one in on[9:]).split()]
    assert set(lengths[:-1]) == {2}
    assert pacer.duty_ratio == pytest.approx(0.2)


def test_what_is_dear_even_in_windows_is_switched_off_and_tried_again() -> None:
    pacer = Pacer(Pacing(overhead_ratio=0.001))
    run(pacer, 250, cost=0.5)
    assert pacer.effort is Effort.OFF
    assert not pacer.is_collecting
    assert [change.effort for change in pacer.changes] == [Effort.DUTY, Effort.OFF]
    run(pacer, int(REST_S) + 1, cost=0.0, begin=250)
    assert [change.reason for change in pacer.changes[2:]] == ["tried-again", "calm"]


def test_it_comes_back_when_it_is_cheap_again() -> None:
    pacer = Pacer(Pacing())
    run(pacer, 30, cost=0.5)
    assert pacer.effort is Effort.DUTY
    run(pacer, int(CALM_S) + 60, cost=0.001, begin=30)
    assert pacer.effort is Effort.FULL
    assert pacer.reason == "calm"


@pytest.mark.parametrize("what", ["overflowed", "spool_full"])
def test_losses_make_windows(what: str) -> None:
    pacer = Pacer(Pacing())
    run(pacer, 5, cost=0.01, **{what: True})
    assert pacer.effort is Effort.DUTY
    assert pacer.reason == {"overflowed": "buffer-full", "spool_full": "spool-full"}[what]


def test_a_spool_that_stays_full_ends_in_nothing_and_stays_there() -> None:
    pacer = Pacer(Pacing())
    run(pacer, 2000, cost=0.0, spool_full=True)
    assert pacer.effort is Effort.OFF


def test_every_change_is_kept_with_its_reason() -> None:
    pacer = Pacer(Pacing(overhead_ratio=0.001))
    run(pacer, 5000, cost=0.5)
    assert pacer.changed == len(pacer.changes)
    assert all(change.reason for change in pacer.changes)
    assert pacer.changed >= 4
