"""Calling contexts as documents: both directions, several measures, the largest frames, findings, two runs."""

from __future__ import annotations

import pytest

from deepprof.analysis import Analysis
from deepprof.comparison.pairing import side_of
from deepprof.web.documents.flame import write_flame, write_flame_of_both
from tests.deepprof.web.documents.columns import adds_up, again, check_columns, check_texts, check_tree
from tests.metrics.annotation.test_layers import train

COLUMNS = ["parent", "name", "kind", "file", "line", "finding"]


@pytest.fixture(scope="module")
def trained() -> Analysis:
    """A net of two layers."""
    return train()


@pytest.mark.parametrize("direction", ["down", "up"])
def test_frames_take_what_lies_within(trained: Analysis, direction: str) -> None:
    document = again(write_flame(trained, 0, direction))
    check_columns(document, COLUMNS, len(document.parent))
    check_tree(document.parent)
    check_texts(document, document.name, document.kind, document.file)
    assert [measure.name for measure in document.measures][:2] == ["device", "host"]
    for measure, values in zip(document.measures, document.value, strict=True):
        assert len(values) == len(document.parent), measure
        adds_up(document.parent, values)


def test_both_directions_have_the_same_whole(trained: Analysis) -> None:
    down, up = write_flame(trained, 0, "down"), write_flame(trained, 0, "up")
    assert [values[0] for values in down.value] == [values[0] for values in up.value]
    device = trained.events.filter(trained.events["activity"] == "kernel")
    assert down.value[0][0] == (device["end_ns"] - device["start_ns"]).sum()


def test_the_smallest_frames_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch, trained: Analysis) -> None:
    whole = write_flame(trained, 0, "down")
    monkeypatch.setattr("deepprof.web.documents.flame.MOST_FRAMES", 4)
    cut = write_flame(trained, 0, "down")
    assert len(cut.parent) == 4
    assert cut.left_out == whole.left_out + len(whole.parent) - 4
    check_tree(cut.parent)
    assert [values[0] for values in cut.value] == [values[0] for values in whole.value]


def test_two_runs_are_one_flame(trained: Analysis) -> None:
    side = side_of(trained, trained.loops[0])
    document = write_flame_of_both(side, side)
    assert document is not None
    assert document.before == document.value
    check_tree(document.parent)
    for values in document.value:
        adds_up(document.parent, values, slack=len(values))


def test_a_run_without_code_has_no_flame_of_both(trained: Analysis) -> None:
    from msgspec.structs import replace

    side = side_of(trained, trained.loops[0])
    assert write_flame_of_both(side, replace(side, tree=None)) is None
