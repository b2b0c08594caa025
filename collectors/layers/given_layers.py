"""Layers that a user gives for traces: those that a trace brings itself are replaced."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.collectors.layers.layers_file import ModelLayers
from deepprof.collectors.trace import Trace
from deepprof.plurals import counted

OTHER_MODEL = "give the layers of the model that was trained, and record the host's operators (ProfilerActivity.CPU)"


def give_layers(traces: Sequence[Trace], layers: ModelLayers) -> list[Trace]:
    """Return the traces with `Trace.layers`. Raises `TraceError` where no trace has any of the operators."""
    wanted = layers.table["operator"].unique()
    if not any(_has_any(trace, wanted) for trace in traces):
        raise TraceError(
            layers.path, f"no trace has any of its {counted(layers.table.height, 'operator')}", OTHER_MODEL
        )
    return [replace(trace, layers=layers.table) for trace in traces]


def _has_any(trace: Trace, wanted: pl.Series) -> bool:
    used = trace.host_events.filter(pl.col("category") == "op")["name_id"].unique()
    plain = trace.names.gather(used).str.strip_chars_end("_")
    return bool(plain.is_in(wanted.str.strip_chars_end("_").implode()).any())
