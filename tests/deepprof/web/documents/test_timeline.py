"""Iterations as boxes: host above device, waits between, both sides of a stage paired."""

from __future__ import annotations

import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.web.documents.timeline import KINDS, write_timeline
from tests.deepprof.render.reports import read_simulated
from tests.deepprof.web.documents.columns import again, check_columns, check_texts, check_tree
from tests.metrics.annotation.test_layers import train

COLUMNS = ["parent", "kind", "title", "full", "start_ns", "duration_ns", "busy_ns", "events", "part", "twin", "finding"]


@pytest.fixture(scope="module")
def trained() -> Analysis:
    """A net of two layers, with functions of modules."""
    return train()


def place(analysis: Analysis) -> tuple[int, int]:
    anatomy = analysis.loops[0].anatomy
    assert anatomy is not None and anatomy.representative is not None  # noqa: PT018
    return 0, anatomy.representative


def test_boxes_lie_within_each_other(trained: Analysis) -> None:
    document = again(write_timeline(trained, [place(trained)]))
    check_columns(document, COLUMNS, len(document.parent))
    check_tree(document.parent)
    check_texts(document, document.title, document.full, document.source)
    end = [a + b for a, b in zip(document.start_ns, document.duration_ns, strict=True)]
    for row, around in enumerate(document.parent):
        if around >= 0:
            assert document.start_ns[around] <= document.start_ns[row]
            assert end[row] <= end[around]
    assert [track.side for track in document.tracks] == ["host", "device"]
    assert sum(track.count for track in document.tracks) == len(document.parent)


def test_the_kinds_are_from_the_iteration_down_to_kernels(trained: Analysis) -> None:
    document = write_timeline(trained, [place(trained)])
    device = document.tracks[1]
    kinds = {KINDS[kind] for kind in document.kind[device.first : device.first + device.count]}
    assert {"iteration", "stage", "layer", "operator", "kernel"} <= kinds
    top = [
        document.strings[document.title[row]] for row, around in enumerate(document.parent) if around == device.first
    ]
    assert [title for title in top if title] == ["forward", "backward", "optimizer"]


def test_a_stage_has_its_twin_on_the_other_side(trained: Analysis) -> None:
    document = write_timeline(trained, [place(trained)])
    paired = [row for row, twin in enumerate(document.twin) if twin >= 0]
    titles = {document.strings[document.title[row]] for row in paired}
    assert {"forward", "backward"} <= titles
    for row in paired:
        twin = document.twin[row]
        assert document.twin[twin] == row
        assert document.title[twin] == document.title[row]
        assert (row < document.tracks[1].first) != (twin < document.tracks[1].first)


def test_waits_are_boxes_with_their_cause() -> None:
    growing = deepprof.analyze(read_simulated("graph-growth", iterations=14))
    document = write_timeline(growing, [place(growing)])
    idle = [row for row, kind in enumerate(document.kind) if KINDS[kind] == "idle"]
    assert idle
    assert all((document.part[row] >= 0) == (row in idle) for row in range(len(document.kind)))
    longest = max(idle, key=lambda row: document.duration_ns[row])
    assert document.parts[document.part[longest]].name == "idle_host_ns"
    assert growing.findings[document.finding[longest]].rule == "graph-growth"
    waited = sum(document.duration_ns[row] for row in idle)
    assert waited <= growing.loops[0].table.filter(index=place(growing)[1])["idle_ns"].item()


def test_the_deepest_boxes_go_first(monkeypatch: pytest.MonkeyPatch, trained: Analysis) -> None:
    whole = write_timeline(trained, [place(trained)])
    monkeypatch.setattr("deepprof.web.documents.timeline.MOST_BOXES", len(whole.parent) - 1)
    cut = write_timeline(trained, [place(trained)])
    assert cut.left_out == len(whole.parent) - len(cut.parent) > 0
    check_tree(cut.parent)
    assert [track.count for track in cut.tracks] != [track.count for track in whole.tracks]
    assert len(cut.tracks) == 2


def test_nothing_is_an_empty_document(trained: Analysis) -> None:
    document = again(write_timeline(trained, []))
    assert document.tracks == []
    assert document.parent == []


def test_several_iterations_are_several_pairs_of_tracks(trained: Analysis) -> None:
    number, index = place(trained)
    document = write_timeline(trained, [(number, index), (number, index + 1)])
    assert [track.iteration for track in document.tracks] == [index, index, index + 1, index + 1]
    check_tree(document.parent)
    second = document.tracks[2].first
    assert document.parent[second] == -1
    assert all(twin < 0 or (twin >= second) == (row >= second) for row, twin in enumerate(document.twin))
