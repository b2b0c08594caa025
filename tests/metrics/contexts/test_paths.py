"""Contexts of paths, against the paths written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.contexts.paths import DEEPEST, measure_depths, number_paths

FORESTS = st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 2), st.integers(0, 1)), max_size=30)


def grown(forest: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parents (earlier rows or none), frames and threads."""
    rows = [(min(parent, row - 1), frame, thread) for row, (parent, frame, thread) in enumerate(forest)]
    parent, frame, thread = np.array(rows, np.int64).reshape(-1, 3).T
    return parent, frame, thread


@given(FORESTS)
def test_equal_paths_are_one_context(forest: list[tuple[int, int, int]]) -> None:
    parent, frame, thread = grown(forest)
    paths = list[tuple[int, ...]]()
    for row, around in enumerate(parent):
        paths.append((*(paths[around] if around >= 0 else (-1 - thread[row],)), int(frame[row])))
    found = number_paths(parent, frame, thread, first=2)
    known = dict(zip(found.context.tolist(), paths, strict=True))
    assert len(known) == len(set(paths)) == len(found.parent)
    assert sorted(known) == list(range(2, 2 + len(known)))
    for context, path in known.items():
        around = int(found.parent[context - 2])
        assert around < context
        assert path[-1] == found.frame[context - 2]
        assert path[:-1] == (known[around] if around >= 2 else (-1 - around,))
    assert measure_depths(parent).tolist() == [len(path) - 2 for path in paths]


def test_what_lies_too_deep_belongs_to_the_deepest_context() -> None:
    chain = np.arange(-1, DEEPEST + 10)
    found = number_paths(chain, np.zeros(len(chain), np.int64), np.zeros(len(chain), np.int64), first=1)
    assert len(found.parent) == DEEPEST + 1
    assert set(found.context[DEEPEST:].tolist()) == {DEEPEST + 1}


def test_no_slices_make_no_contexts() -> None:
    nothing = np.empty(0, np.int64)
    found = number_paths(nothing, nothing, nothing, first=1)
    assert (len(found.parent), len(found.frame), len(found.context)) == (0, 0, 0)
