"""The roofline of a model on a backend: what each layer took, against what the device allows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from deepprof.collectors.models.backend_profile import BackendProfile
from deepprof.collectors.models.graph import ModelGraph
from deepprof.metrics.cost.layer_costs import cost_layers, sum_layers
from deepprof.metrics.cost.mapping import map_layers
from deepprof.metrics.cost.mapping_checks import MappingChecks, check_mapping
from deepprof.metrics.cost.roofs import DevicePeaks, add_roofs

COUNTED = "counted"  # bytes that the processor counted; FLOP are predicted all the same


@dataclass(frozen=True, slots=True, eq=False)
class ModelRun:
    """A model that ran on a backend with inputs of one shape.

    `layers` has the rows of `cost_layers`, `whole` one for the model from end to end, both with their roofs.
    `layers` also has `share_ratio`, of the time of all layers, null where they take none.
    """

    profile: BackendProfile
    checks: MappingChecks
    layers: pl.DataFrame
    whole: pl.DataFrame

    @property
    def difference_ratio(self) -> float | None:
        """How much more bytes the backend's own tensors have than predicted, of the layers where both are known."""
        known = self.layers.drop_nulls(["nbytes", "tensors_nbytes"]).filter(pl.col("nbytes") > 0)
        predicted = int(known["nbytes"].sum())
        return int(known["tensors_nbytes"].sum()) / predicted - 1 if predicted else None


def measure_model_run(graph: ModelGraph, profile: BackendProfile, peaks: DevicePeaks | None) -> ModelRun:
    """Return what the layers of a profile cost and how far they are from their roofs.

    Where the processor counted the bytes of a run, the row of the whole model has these.
    """
    mapping = map_layers(graph, profile)
    layers = cost_layers(mapping)
    whole = sum_layers(layers, profile.latency_ns)
    if profile.counted_nbytes is not None:
        whole = whole.with_columns(nbytes=pl.lit(profile.counted_nbytes, pl.Int64), basis=pl.lit(COUNTED))
    all_ns = pl.col("device_ns").sum()
    shares = add_roofs(layers, peaks).with_columns(share_ratio=pl.when(all_ns > 0).then(pl.col("device_ns") / all_ns))
    return ModelRun(profile, check_mapping(mapping), shares, add_roofs(whole, peaks))
