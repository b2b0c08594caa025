"""Every program with its true verdict, on a CPU and on an NVIDIA GPU; this is the one place where it is.

This module needs no torch, so that tests can be named where it is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ITERATIONS", "PROGRAMS", "Program"]

ITERATIONS = 12


@dataclass(frozen=True, slots=True)
class Program:
    """A function of `tests.programs.mistakes` and the rule that its recording deserves; None is a healthy one."""

    function: str
    on_cpu: str | None
    on_cuda: str | None


PROGRAMS = {
    "healthy": Program("healthy", None, None),
    "slow-loader": Program("slow_loader", "input-bound", "input-bound"),
    "fast-loader": Program("fast_loader", None, None),
    # Its layers are small: on an H200 the waits cost 0.3 ms of an iteration, and launching them one by one 1.9 ms.
    "item-each-layer": Program("item", None, "launch-bound"),
    "kept-graph": Program("kept_graph", "graph-growth", "graph-growth"),
    "recompiling-shapes": Program("recompiling_shapes", "graph-growth", "graph-growth"),
    "logging": Program("logging", "host-bound", "host-bound"),
}
