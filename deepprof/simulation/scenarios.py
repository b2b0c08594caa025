"""The scenarios by name: which program each one runs, and which rule must come first in its diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepprof.simulation import collectives, device_problems, growth, host_problems, inference, program

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepprof.simulation.plan import RankPlan, SimulationRequest

__all__ = ["SCENARIOS", "Scenario"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: `plan` makes one rank's program, `finding` is the rule that must fire, if any.

    `ranks`: "one" runs alone, "several" makes sense only with others, "any" does both.
    """

    plan: Callable[[SimulationRequest], RankPlan]
    finding: str | None = None
    ranks: str = "one"


SCENARIOS = {
    "healthy": Scenario(program.plan_healthy),
    "graph-growth": Scenario(program.plan_graph_growth, "graph-growth"),
    "copy-bound": Scenario(program.plan_copy_bound, "copy-bound"),
    "input-bound": Scenario(host_problems.plan_input_bound, "input-bound"),
    "input-fixed": Scenario(host_problems.plan_input_fixed),
    "launch-bound": Scenario(host_problems.plan_launch_bound, "launch-bound"),
    "sync-bound": Scenario(host_problems.plan_sync_bound, "sync-bound"),
    "allocator-bound": Scenario(host_problems.plan_allocator_bound, "allocator-bound"),
    "logging": Scenario(host_problems.plan_logging, "host-bound"),
    "starvation": Scenario(host_problems.plan_starvation, "slow-iterations"),
    "small-kernels": Scenario(device_problems.plan_small_kernels, "small-kernels"),
    "drift": Scenario(device_problems.plan_drift, "drift"),
    "accumulation": Scenario(device_problems.plan_accumulation),
    "memory-growth": Scenario(growth.plan_memory_growth, "graph-growth"),
    "recompilation": Scenario(growth.plan_recompilation, "graph-growth"),
    "recapture": Scenario(growth.plan_recapture, "graph-growth"),
    "inference": Scenario(inference.plan_inference),
    "inference-launch-bound": Scenario(inference.plan_launch_bound, "launch-bound"),
    "communication-bound": Scenario(collectives.plan_communication_bound, "communication-bound", "any"),
    "communication-hidden": Scenario(collectives.plan_communication_hidden, None, "any"),
    "straggler": Scenario(collectives.plan_straggler, "straggler", "several"),
    "ranks-healthy": Scenario(collectives.plan_ranks_healthy, None, "several"),
}
