"""The roofline of a loop as the page gets it."""

from __future__ import annotations

import pytest

import deepprof
from deepprof.web.documents import roofline as module
from deepprof.web.documents.roofline import RooflineDocument, write_roofline
from deepprof.web.views import NO_SHAPES, VIEWS, NoDocumentError
from tests.deepprof.render.reports import read_simulated
from tests.deepprof.web.documents.columns import again
from tests.deepprof.web.documents.rooflines import PRODUCT, UNKNOWN, with_groups


@pytest.fixture(scope="module")
def analysis() -> deepprof.Analysis:
    return deepprof.analyze(read_simulated("healthy"))


def written(analysis: deepprof.Analysis) -> RooflineDocument:
    document = write_roofline(analysis, 0)
    assert document is not None
    return again(document)


def test_groups_with_their_shares(analysis: deepprof.Analysis) -> None:
    document = written(with_groups(analysis, PRODUCT, UNKNOWN))
    groups, texts = document.groups, document.strings
    assert groups.share_ratio == [0.75, 0.25]
    assert [texts[number] for number in (groups.operator[0], groups.dims[0], groups.bound[0])] == [
        "aten::mm",
        "[[8,8],[8,8]]",
        "compute",
    ]
    assert (groups.operator[1], texts[groups.kernel[1]]) == (-1, "custom")
    assert groups.flops_per_s == [5e12, None]
    assert groups.headroom_ns == [150, None]
    assert (document.left_out, document.left_out_ns) == (0, 0)


def test_roofs_meet_within_the_axes(analysis: deepprof.Analysis) -> None:
    document = written(with_groups(analysis, PRODUCT, UNKNOWN))
    assert [(roof.kind, roof.label) for roof in document.roofs] == [
        ("memory", "memory 100 GB/s"),
        ("compute", "float32 vector 1 TFLOP/s"),
        ("compute", "float16 matrix 10 TFLOP/s"),
    ]
    assert document.roofs[0].end == pytest.approx((100, 1e13))
    assert (document.intensity_axis.low, document.intensity_axis.high) == (0, 3)
    assert sum(document.intensity_axis.shares) == pytest.approx(0.75)
    assert sum(document.rate_axis.shares) == pytest.approx(0.75)
    assert document.notes[1] == "Roofs of made up: of the test."
    assert "75.0 %" in document.notes[0]


def test_a_device_without_peaks(analysis: deepprof.Analysis) -> None:
    document = written(with_groups(analysis, PRODUCT, peaks=None))
    assert document.roofs == []
    assert "deepprof roofline TRACE --peaks" in document.notes[1]  # neither report nor view has that option


def test_groups_are_capped(analysis: deepprof.Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    document = written(with_groups(analysis, PRODUCT, UNKNOWN))
    assert (len(document.groups.time_ns), document.left_out, document.left_out_ns) == (1, 1, 100)
    assert document.groups.share_ratio == [0.75]


def test_no_group_at_all(analysis: deepprof.Analysis) -> None:
    assert written(with_groups(analysis)).groups.time_ns == []


def test_the_view_says_how_to_get_it(analysis: deepprof.Analysis) -> None:
    (view,) = (view for view in VIEWS if view.name == "roofline")
    assert view.describe(analysis).problem == NO_SHAPES
    with pytest.raises(NoDocumentError):
        view.write(analysis, ["0"])
    known = with_groups(analysis, PRODUCT)
    assert [entry.key for entry in view.describe(known).documents] == ["roofline/0"]
    assert view.write(known, ["0"]).loop == 0


def test_infinite_values_are_left_out(analysis: deepprof.Analysis) -> None:
    document = written(with_groups(analysis, PRODUCT | {"intensity": float("inf"), "roof_ratio": float("nan")}))
    assert (document.groups.intensity, document.groups.roof_ratio) == ([None], [None])
