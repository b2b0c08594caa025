"""The layers of a model noted in the trace files of a torch.profiler, from a forward pass that the job runs anyway."""

from __future__ import annotations

import importlib
from typing import Any

from deepprof.collectors.live.job_log import warn
from deepprof.collectors.live.model_forward import ForwardRecorder, RecordedForward, write_embedded

KEY = "deepprof_layers"  # in the header of a trace
UNSEEN = "the layers of the model are not noted in the trace: it was not called until detach, or is compiled"


class LayerNotes:
    """Waits for a forward pass of `model`, and notes its layers; errors are logged once and never reach the job."""

    def __init__(self, profiler: Any, model: Any) -> None:
        self.profiler = profiler
        self.noted = False
        self.recorder = ForwardRecorder(model, self.note, _report)

    def note(self, forward: RecordedForward) -> None:
        """Have the profiler write the layers into this cycle, if one is being recorded, and into all later ones."""
        text = write_embedded(forward)
        self.profiler.preset_metadata_json(KEY, text)
        if _is_recording(self.profiler):
            self.profiler.add_metadata_json(KEY, text)
        self.noted = True

    def stop(self) -> None:
        """Wait no longer; say so where no forward pass was seen."""
        try:
            if not self.recorder.over:
                warn(UNSEEN)
            self.recorder.remove()
        except Exception as error:
            _report(error)


def note_layers(profiler: Any, model: Any) -> LayerNotes | None:
    """Note the layers of `model` in the traces of `profiler`; None, and one line in the log, where that cannot be."""
    try:
        return LayerNotes(profiler, model)
    except Exception as error:
        _report(error)
        return None


def _is_recording(profiler: Any) -> bool:
    """Return whether a cycle is being recorded; torch prints a warning on a note at any other time."""
    torch: Any = importlib.import_module("torch")
    return profiler.profiler is not None and bool(torch.autograd._profiler_enabled())


def _report(error: Exception) -> None:
    """Log why there are no layers."""
    warn(f"the layers of the model are not noted in the trace: {error}")
