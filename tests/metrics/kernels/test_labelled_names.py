"""The labelled names of real traces; `make kernels` scores them, and the operators of the traces, in full."""

from __future__ import annotations

import pytest

from benchmarks.kernel_names.answers import ask_names
from benchmarks.kernel_names.labels import LABELS, Label, read_labels
from benchmarks.kernel_names.leaving_out import find_support
from benchmarks.kernel_names.scoring import rate, rate_sure


@pytest.fixture(scope="module")
def labels() -> list[Label]:
    """Return the labels, or skip where they are absent."""
    found = read_labels()
    if not found:
        pytest.skip(f"no labels in {LABELS} (set DEEPPROF_TRACES)")
    return found


def test_labelled_names_are_told(labels: list[Label]) -> None:
    answers = ask_names(labels)
    assert not [row.write() for row in rate("names", answers, (0.97, 0.99), (0.98, 0.98)) if row.fails]
    sure, wrong = rate_sure(answers)
    assert (sure.fails, wrong) == (False, [])


def test_lines_are_supported_by_the_files_of_their_names(labels: list[Label]) -> None:
    support = find_support(labels)
    assert set.union(*support.values()) == {file for label in labels for file in label.files}
