"""The tables of a comparison: stages and layers of both runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.annotation.stage_names import STAGE

I64, F64 = pl.Int64(), pl.Float64()

STAGE_CHANGES = TableSchema.of(
    "A stage of the mean iteration in both runs. The differences add up to that of the mean iteration.",
    {
        "stage": (STAGE, "the stage"),
        "presence": (pl.String(), "`both`, or the only run that has it: `new` in B, `gone` from it"),
        "a_ns": (I64, "how long the device works or waits for it in A: the mean; 0 where A does not have it"),
        "b_ns": (I64, "the same in B"),
        "difference_ns": (I64, "how much longer that is in B"),
        "a_idle_ns": (I64, "how long of it the device waits in A"),
        "b_idle_ns": (I64, "the same in B"),
        "a_host_ns": (I64, "how long the threads that launch are in it in A: the mean; null: not recorded"),
        "b_host_ns": (I64, "the same in B"),
        "a_confidence": (F64, "how sure it is in A, from 0 to 1; null where it has no work of the device"),
        "b_confidence": (F64, "the same in B"),
    },
)
LAYER_CHANGES = TableSchema.of(
    "A layer of the model that both runs have and whose own time changed: medians, without the layers within.",
    {
        "path": (pl.String(), "its name with those of the layers around it, from the outermost one on"),
        "a_ns": (I64, "how long the device works for it in A"),
        "b_ns": (I64, "the same in B"),
        "difference_ns": (I64, "how much longer that is in B"),
        "a_forward_ns": (I64, "how much of it is in forward passes in A"),
        "b_forward_ns": (I64, "the same in B"),
        "a_backward_ns": (I64, "how much of it is in backward passes in A"),
        "b_backward_ns": (I64, "the same in B"),
    },
)
COMPARISON_TABLES: Mapping[str, TableSchema] = MappingProxyType({"stages": STAGE_CHANGES, "layers": LAYER_CHANGES})
