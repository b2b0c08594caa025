"""The paper's Table III as figures with the texts of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.render.origin import list_figures
from deepprof.render.wording import Wording
from deepprof.web.documents.schema import Figure

if TYPE_CHECKING:
    from deepprof.analysis import Loop


def write_table_iii(loop: Loop, words: Wording) -> list[Figure]:
    """Return Table III of a loop as the report has it."""
    values, listed = loop.metrics.values, list_figures(loop.metrics, words)
    return [Figure(name=name, title=title, value=values[name], text=text) for name, title, text in listed]
