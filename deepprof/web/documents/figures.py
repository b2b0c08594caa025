"""The paper's Table III as figures with the texts of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.metrics.iteration import LOOP_METRICS
from deepprof.render.origin import FORMATS
from deepprof.web.documents.schema import Figure

if TYPE_CHECKING:
    from deepprof.analysis import Loop
    from deepprof.render.wording import Wording


def list_figures(loop: Loop, words: Wording) -> list[Figure]:
    """Return Table III of a loop; a program without a device has no figures on copies."""
    shown = {name: each for name, each in LOOP_METRICS.items() if not (words.on_cpu and each.of_copies)}
    values = loop.metrics.values
    return [
        Figure(name=name, title=each.label, value=values[name], text=FORMATS[name.rpartition("_")[2]](values[name]))
        for name, each in shown.items()
    ]
