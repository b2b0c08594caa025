"""What is known next to the symbols: kept as long as the symbols, cut to every window, refused when it cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deepprof.mining import Evidence, Family, find_loop
from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.recent import RecentEvidence, check_evidence
from tests.mining.jobs import Job
from tests.mining.online_runs import starts_of

WINDOW = 1 << 12
LAYER = [1, 2, 3, 4, 5, 1, 6, 7, 8, 9]


def feed_all(
    stream: np.ndarray, evidence: Evidence, chunk: int = 700, window: int = WINDOW
) -> tuple[OnlineMiner, list]:
    miner, given = OnlineMiner(window), []
    for first in range(0, len(stream), chunk):
        end = min(len(stream), first + chunk)
        inside = [(f.positions >= first) & (f.positions < end) for f in evidence.families]
        families = [
            replace(f, positions=f.positions[which] - first) for f, which in zip(evidence.families, inside, strict=True)
        ]
        given.append(miner.feed(stream[first:end], replace(evidence.between(first, end), families=tuple(families))))
    return miner, [*given, miner.finish()]


@pytest.mark.parametrize("offset", [0, 17, 200])
def test_a_step_marker_says_where_iterations_begin(offset: int) -> None:
    job = Job(prologue=0, iterations=60)
    stream = job.symbols()
    marked = np.array(job.starts) + offset
    miner, given = feed_all(stream, Evidence(families=(Family("step", "step", marked[marked < len(stream)]),)))
    assert miner.loop is not None
    assert miner.loop.source == "annotation"
    for batch in given:
        assert np.isin(starts_of(batch), marked).all()


def test_long_pauses_of_the_host_say_where_iterations_begin() -> None:
    job = Job(prologue=0, cut=100, iterations=60)
    stream = job.symbols()
    gaps = np.ones(len(stream))
    marked = np.array(job.starts) + 40
    gaps[marked[marked < len(stream)]] = 100.0
    _, given = feed_all(stream, Evidence(launch_gaps=gaps))
    for batch in given:
        assert np.isin(starts_of(batch), marked).all()


def test_a_copy_from_the_host_in_each_makes_a_short_iteration_one() -> None:
    stream = np.array(LAYER * 300)
    copies = np.zeros(len(stream), np.bool_)
    copies[3::10] = True
    assert feed_all(stream, Evidence())[0].loop is None
    miner, _ = feed_all(stream, Evidence(copies=copies))
    assert miner.loop is not None
    assert miner.loop.period == 10


def test_optimizer_names_may_be_known_later_than_others() -> None:
    job = Job(iterations=40)
    stream, optimizer = job.symbols(), np.arange(90) >= 70
    miner = OnlineMiner(WINDOW)
    for first in range(0, len(stream), 500):
        chunk = stream[first : first + 500]
        miner.feed(chunk, Evidence(optimizer=optimizer[: int(chunk.max()) + 1]))
    assert miner.loop is not None
    assert "optimizer's kernels in each" in miner.loop.evidence


def test_the_window_shows_what_offline_mining_would_see() -> None:
    random = np.random.default_rng(0)
    signals: dict[str, Any] = {name: random.random(3000) for name in ("gaps", "launch_gaps")}
    signals |= {name: random.random(3000) < 0.1 for name in ("copies", "syncs", "graphs")}
    positions = np.sort(random.integers(0, 3000, 50))
    family = Family("step", "loop", positions, 0.5, positions + 70, 2.0)
    whole = Evidence(**signals, families=(family,), start=5, length=3000)
    recent = RecentEvidence.empty(1000)
    for first in range(0, 3000, 250):
        inside = (positions >= first) & (positions < first + 250)
        part = Family("step", "loop", positions[inside] - first, 0.5, positions[inside] + 70 - first, 2.0)
        known = check_evidence(replace(whole.between(first, first + 250), families=(part,)), 250)
        for edges in ((0, 0), (0, 100), (100, 250)):
            recent.append(known, *edges, first)
    seen, expected = recent.window(2100, 2900, 9), whole.between(2100, 2900)
    for name in signals:
        assert getattr(seen, name).tolist() == getattr(expected, name).tolist()
    known = expected.families[0].positions < 800
    assert seen.families[0].positions.tolist() == expected.families[0].positions[known].tolist()
    assert expected.families[0].ends is not None
    assert seen.families[0].ends is not None
    assert seen.families[0].ends.tolist() == expected.families[0].ends[known].tolist()


def test_a_signal_that_pauses_is_known_from_its_return_on() -> None:
    recent = RecentEvidence.empty(1000)
    gaps = check_evidence(Evidence(gaps=np.ones(100)), 100)
    for at, known in enumerate([gaps, check_evidence(None, 100), gaps, gaps]):
        recent.append(known, 0, 100, 100 * at)
    assert recent.window(100, 400, 0).gaps is None
    assert recent.window(200, 400, 0).gaps is not None


def test_a_range_that_ends_late_is_told_late() -> None:
    job = Job(prologue=0, iterations=40)
    stream = job.symbols()
    miner = OnlineMiner(WINDOW)
    for first in range(0, len(stream), 500):
        told = [start - first for start in job.starts if first - 300 <= start < first + 200]
        miner.feed(stream[first : first + 500], Evidence(families=(Family("step", "step", np.array(told)),)))
    assert miner.loop is not None
    assert miner.loop.source == "annotation"


WRONG = {
    "too short": (Evidence(gaps=np.ones(4)), "one entry for each of the 5 symbols"),
    "too long": (Evidence(copies=np.ones(6, np.bool_)), "one entry for each of the 5 symbols"),
    "not flat": (Evidence(gaps=np.ones((5, 1))), "one entry for each"),
    "NaN": (Evidence(gaps=np.array([1, 2, np.nan, 4, 5])), "NaN"),
    "infinite": (Evidence(launch_gaps=np.array([1, 2, np.inf, 4, 5])), "infinite"),
    "negative": (Evidence(gaps=np.array([1, 2, -3.0, 4, 5])), "negative"),
    "texts": (Evidence(gaps=np.array(list("abcde"))), "must be numbers"),
    "numbers for marks": (Evidence(syncs=np.ones(5)), "must be booleans"),
    "optimizer": (Evidence(optimizer=np.ones(5)), "must be booleans"),
    "too many names": (Evidence(optimizer=np.ones(2**20 + 1, np.bool_)), "at most"),
    "start": (Evidence(start=-1), "start"),
    "behind": (Evidence(families=(Family("x", "step", np.array([5])),)), "behind the chunk"),
    "halves": (Evidence(families=(Family("x", "step", np.array([0.5])),)), "integers"),
    "far": (Evidence(families=(Family("x", "step", np.array([-(2**63)])),)), "within the stream"),
    "ends": (Evidence(families=(Family("x", "step", np.array([1]), 0.0, np.array([1, 2])),)), "but 2 end"),
    "trust": (Evidence(families=(Family("x", "blind", np.array([1])),)), "unknown trust"),  # type: ignore[arg-type]
    "coverage": (Evidence(families=(Family("x", "step", np.array([1]), float("nan")),)), "finite"),
}


@pytest.mark.parametrize("name", WRONG)
def test_evidence_that_cannot_be_is_a_value_error_and_changes_nothing(name: str) -> None:
    evidence, message = WRONG[name]
    miner = OnlineMiner(WINDOW)
    miner.feed([1, 2, 3], Evidence(gaps=np.ones(3)))
    before = miner.save()
    with pytest.raises(ValueError, match=message):
        miner.feed([1, 2, 3, 4, 5], evidence)
    assert miner.save() == before


def test_symbols_beyond_the_marks_of_the_optimizer_are_none() -> None:
    job = Job(iterations=40)
    stream = job.symbols() + np.where(np.arange(len(job.symbols())) % 997 == 5, 2**31, 0)
    miner, _ = feed_all(stream, Evidence(optimizer=np.zeros(3, np.bool_)))
    assert miner.loop is not None


def test_from_the_review_of_the_window_on_as_offline() -> None:
    job = Job(iterations=60, p_insert=0.2)
    stream = job.symbols()
    gaps = np.random.default_rng(0).random(len(stream))
    gaps[np.array(job.starts) + 9] = 40.0
    offline = find_loop(stream, Evidence(gaps=gaps), windows=(WINDOW, 2 * WINDOW)).loop
    miner, _ = feed_all(stream, Evidence(gaps=gaps))
    assert offline is not None
    assert miner.loop is not None
    assert miner.loop.template.tolist() == offline.template.tolist()
    assert miner.loop.evidence == offline.evidence
