"""Iterations that become slower, and series that only look like it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.metrics.series import changes
from deepprof.metrics.series.changes import can_find_changes
from deepprof.metrics.series.drift import find_drift, separate
from tests.chance import examples
from tests.loops import MS, make_loop

needs_library = pytest.mark.skipif(not can_find_changes(), reason="needs ruptures: pip install 'deepprof[changes]'")


@needs_library
@settings(max_examples=examples(40))
@given(st.integers(0, 9999), st.integers(8, 40), st.integers(8, 40), st.floats(1.15, 3))
def test_a_planted_shift_is_found_where_it_is(seed: int, before: int, after: int, factor: float) -> None:
    times = np.repeat([100.0, 100.0 * factor], [before, after])
    times += np.random.default_rng(seed).normal(0, 1, len(times))
    found = find_drift(make_loop(times.tolist()))
    assert found is not None
    assert (found.kind, found.at) == ("shift", before)
    assert found.lost_ns == pytest.approx(100 * (factor - 1) * MS, rel=0.1)
    assert found.separation == 1


def test_a_trend_is_found_with_its_ends() -> None:
    rng = np.random.default_rng(1)
    times = 100 + np.linspace(0, 60, 30) + rng.normal(0, 4, 30)
    found = find_drift(make_loop(times.tolist()))
    assert found is not None
    assert (found.kind, found.at) == ("trend", None)
    assert found.before_ns < 115 * MS < 145 * MS < found.after_ns


def test_without_the_library_the_ends_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda _: None)
    rng = np.random.default_rng(2)
    times = np.repeat([100.0, 130.0], [20, 14]) + rng.normal(0, 1, 34)
    found = find_drift(make_loop(times.tolist()))
    assert found is not None
    assert found.kind in ("trend", "ends")
    assert found.at is None
    assert found.lost_ns == pytest.approx(30 * MS, rel=0.1)


@pytest.mark.parametrize(
    "times",
    [
        [],
        [100.0],
        [100.0] * 5 + [150.0] * 6,  # thin
        [100.0] * 40,
        [100.0] * 20 + [105.0] * 20,  # small
        [130.0] * 20 + [100.0] * 20,  # faster
        [100.0] * 12 + [140.0] * 12 + [100.0] * 12,  # and back
        [100.0] * 17 + [400.0] * 3,  # outliers at the end
        [100.0, 130.0] * 20,
        [100.0 + 8 * (i % 6) for i in range(48)],
    ],
    ids=["none", "one", "thin", "constant", "small", "faster", "back", "outliers", "alternating", "sawtooth"],
)
def test_what_is_no_drift(times: list[float]) -> None:
    assert find_drift(make_loop(times)) is None


@pytest.mark.parametrize("wandering", [0.0, 0.6])
def test_noise_seldom_drifts(wandering: float) -> None:
    rng, found = np.random.default_rng(3), 0
    for _ in range(100):
        steps = rng.normal(0, 4, 40)
        for i in range(1, 40):
            steps[i] += wandering * steps[i - 1]
        found += find_drift(make_loop((100 + steps).tolist())) is not None
    assert found <= 2


def test_the_part_that_grows_carries_it() -> None:
    loop = make_loop([100.0] * 15 + [140.0] * 15, idle_input_ns=[10.0] * 15 + [50.0] * 15)
    found = find_drift(loop)
    assert found is not None
    assert found.parts["idle_input_ns"] == 40 * MS
    assert found.parts["compute_ns"] == 0


@given(st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20), min_size=1))
def test_separation_counts_pairs(early: list[int], late: list[int]) -> None:
    pairs = [(a < b) + (a == b) / 2 for a in early for b in late]
    assert separate(np.array(early), np.array(late)) == pytest.approx(np.mean(pairs))
