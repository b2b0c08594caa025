"""What each layer of the model takes of an iteration on the device: forward, backward and in all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.annotation.anatomy_tables import LAYER_TIMES
from deepprof.metrics.annotation.device_segments import DeviceSegments
from deepprof.metrics.annotation.event_stages import TraceStages
from deepprof.metrics.annotation.layers import TraceLayers
from deepprof.metrics.annotation.stage_names import BACKWARD, FORWARD
from deepprof.metrics.contexts.paths import add_up
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CELLS = 2_000_000  # iterations times layers that are read: of more iterations some are enough for a median
PASSES = ("busy_ns", "forward_ns", "backward_ns", "idle_ns")


def measure_layers(loop: Loop, layers: TraceLayers, stages: TraceStages, segments: DeviceSegments) -> pl.DataFrame:
    """Return what each layer takes of a usual iteration of a loop, with the schema `LAYER_TIMES`.

    TraceLayers without any event in it are left out, unless others lie within.
    """
    usual = _choose_iterations(loop, len(layers.name))
    own = _add_up(usual, layers, stages, segments)
    depth, parent = layers.depth, np.maximum(layers.parent, 0)
    whole = add_up(own, parent, depth)
    counts = add_up(_count_events(usual, layers, segments), parent, depth)
    kept = (counts > 0) | (np.arange(len(counts)) == 0)
    number = np.cumsum(kept) - 1
    busy, forward, backward, idle = (whole[:, :, place] for place in range(len(PASSES)))
    table = pl.DataFrame(
        {
            "layer": number[kept],
            "parent": pl.Series(np.where(layers.parent < 0, -1, number[parent])[kept]).replace(-1, None),
            "depth": depth[kept],
            "name": [name for name, keep in zip(layers.name, kept, strict=True) if keep],
            "path": [path for path, keep in zip(layers.write_paths(), kept, strict=True) if keep],
            "busy_ns": _percentile(busy, 50)[kept],
            "low_ns": _percentile(busy, 5)[kept],
            "high_ns": _percentile(busy, 95)[kept],
            "forward_ns": _percentile(forward, 50)[kept],
            "backward_ns": _percentile(backward, 50)[kept],
            "idle_ns": _percentile(idle, 50)[kept],
            "own_busy_ns": _percentile(own[:, :, 0], 50)[kept],
            "kernels": counts[kept] / max(1, len(usual)),
        }
    )
    return table.cast(dict(LAYER_TIMES))  # type: ignore[arg-type]


def _choose_iterations(loop: Loop, layers: int) -> Int64s:
    """Return the rows of the usual iterations that are read, spread evenly."""
    rows = loop.table.with_row_index("row").join(loop.usual.select("index"), on="index")["row"].to_numpy()
    rows = np.sort(rows).astype(np.int64)
    step = -(-len(rows) * layers // CELLS) if len(rows) else 1
    return rows[:: max(1, step)]


def _add_up(usual: Int64s, layers: TraceLayers, stages: TraceStages, segments: DeviceSegments) -> Int64s:
    """Return how long each layer itself took in each iteration, by `PASSES`: layers × iterations × passes."""
    place = np.full(int(segments.iteration.max(initial=-1)) + 1, -1, np.int64)
    place[usual[usual < len(place)]] = np.flatnonzero(usual < len(place))
    at, length = place[segments.iteration], segments.length_ns
    layer = np.append(layers.of_events, 0)[segments.event]
    stage = np.append(stages.stage, -1)[segments.event]
    sums = np.zeros((len(layers.name), len(usual), len(PASSES)), np.int64)
    read = at >= 0
    for number, rows in enumerate(
        (
            segments.busy,
            segments.busy & (stage == FORWARD),
            segments.busy & (stage == BACKWARD),
            ~segments.busy & ~segments.loading,
        )
    ):
        kept = read & rows
        np.add.at(sums[:, :, number], (layer[kept], at[kept]), length[kept])
    return sums


def _count_events(usual: Int64s, layers: TraceLayers, segments: DeviceSegments) -> Int64s:
    """Return how many events each layer itself has in the iterations that are read."""
    kept = segments.busy & np.isin(segments.iteration, usual) & (segments.event >= 0)
    events = np.unique(segments.event[kept])
    return np.bincount(layers.of_events[events], minlength=len(layers.name))


def _percentile(values: Int64s, percent: float) -> Int64s:
    """Return a percentile over the iterations, 0 where there are none: for each layer."""
    if not values.shape[1]:
        return np.zeros(len(values), np.int64)
    return np.rint(np.percentile(values, percent, axis=1)).astype(np.int64)
