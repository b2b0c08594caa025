"""Loops by hand whose stages and layers are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median

from msgspec.structs import replace

from deepprof.analysis import Loop
from deepprof.metrics.annotation.anatomy_tables import LAYER_TIMES, STAGE_TIMES, STAGES_IN_LOOP, Anatomy
from tests.deepprof.builders import build_iterations, build_loop
from tests.tables import Row, table

Times = Mapping[str, Sequence[int]]
Layers = Mapping[str, tuple[int, int, int, int]]


def annotate_loop(
    stages: Times,
    *,
    host: Mapping[str, int] | None = None,
    confidence: Mapping[str, float] | float = 1.0,
    layers: Layers | None = None,
    source: str | None = None,
) -> Loop:
    """Return a loop whose stages needed this many ns on the device in every usual iteration, and on the host in all.

    `layers` are by path: ns with all within, own ns, forward and backward ns with all within; two at the same path are
    distinguished by blanks at the end.
    """
    sure = confidence if isinstance(confidence, Mapping) else dict.fromkeys(stages, confidence)
    whole = [sum(times) for times in zip(*stages.values(), strict=True)]
    rows: list[Row] = [
        {
            "stage": stage,
            "device_ns": round(median(times)),
            "low_ns": min(times),
            "high_ns": max(times),
            "mean_busy_ns": float(mean(times)),
            "mean_idle_ns": 0.0,
            "mean_host_ns": None if host is None else float(host.get(stage, 0)),
            "kernels": 1.0,
            "confidence": sure.get(stage),
        }
        for stage, times in stages.items()
    ]
    each: list[Row] = [
        {"iteration": index, "stage": stage, "busy_ns": ns, "idle_ns": 0, "kernels": 1}
        for index in range(len(whole))
        for stage, ns in ((stage, times[index]) for stage, times in stages.items())
    ]
    loop = build_loop(iterations=build_iterations([*whole, 1], warmup=0, partial=False))
    of_layers = table(list_layers(layers or {}), LAYER_TIMES)
    return replace(loop, anatomy=Anatomy(table(rows, STAGES_IN_LOOP), table(each, STAGE_TIMES), of_layers, source, 0))


def list_layers(layers: Layers) -> list[Row]:
    """Return the rows of layers after the model's, none without any."""
    if not layers:
        return []
    numbers = {path: number for number, path in enumerate(layers, 1)}
    model: Row = {"layer": 0, "depth": 0, "name": "", "path": "", "busy_ns": 10**9, "own_busy_ns": 1, "kernels": 1.0}
    rows = [model | {"forward_ns": 10**8, "backward_ns": 10**8, "idle_ns": 0}]
    for path, (busy, own, forward, backward) in layers.items():
        around = path.rpartition("/")[0]
        place: Row = {"layer": numbers[path], "parent": numbers.get(around, 0), "depth": path.count("/") + 1}
        times: Row = {"busy_ns": busy, "own_busy_ns": own, "forward_ns": forward, "backward_ns": backward}
        rows.append(
            place | times | {"name": path.rpartition("/")[2], "path": path.strip(), "idle_ns": 0, "kernels": 1.0}
        )
    return rows
