"""The text report as a whole, for every kind of job and at three widths."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from deepprof.diagnosis.on_cpu import DEVICE_WORDS
from tests.deepprof.render.reports import KINDS, WIDTHS, draw, read_expected


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_report_reads_as_expected(kind: str, width: int) -> None:
    text = draw(kind, width)
    assert text == read_expected(kind, width)
    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_on_the_cpu_speaks_of_no_device(width: int) -> None:
    assert DEVICE_WORDS.findall(read_expected("cpu-only", width)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_the_same_on_every_width(kind: str) -> None:
    """A narrow page lacks bars and the last columns of tables, which are before the findings."""
    told = [read_expected(kind, width).partition("indings\n")[2].split() for width in WIDTHS]
    assert told[0] == told[1] == told[2]
