"""NVTX ranges of a real process without a GPU, written by the package nvtx."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepprof.collectors.live.packets import ANNOTATION
from tests.collectors.live.hooked import Done

pytest.importorskip("nvtx", reason="nvtx is not installed (pip install nvtx)")

FROM_NVTX, FROM_HOOK = 1, 2


@pytest.fixture(scope="module")
def annotated(hooked: Callable[..., Done]) -> Done:
    return hooked("annotated.py")


def test_every_range_arrives_under_its_name(annotated: Done) -> None:
    assert annotated.process.returncode == 0, annotated.process.stderr
    assert annotated.counts() == {
        **{"iteration": 10, "forward": 10, "here": 10},
        **{"loading": 1, "outer": 1, "inner": 1, "pushed": 1},
    }
    assert set(annotated.heard[0].ranges["category"].tolist()) == {ANNOTATION}


def test_ranges_lie_in_each_other_as_they_did(annotated: Done) -> None:
    heard = annotated.heard[0]
    depths = {
        text: set(heard.ranges["depth"][[t == text for t in heard.texts(heard.ranges)]].tolist())
        for text in heard.names.values()
    }
    assert depths["iteration"] == {0}
    assert depths["forward"] == {1}
    assert depths["here"] == {2}
    assert depths["outer"] == {0}


def test_the_source_is_told(annotated: Done) -> None:
    heard = annotated.heard[0]
    sources = dict(zip(heard.texts(heard.ranges), heard.ranges["source"].tolist(), strict=True))
    assert sources.pop("pushed") == FROM_HOOK
    assert set(sources.values()) == {FROM_NVTX}
