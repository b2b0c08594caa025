"""The programs of the scenarios: `deepprof.scenarios` names and describes them."""

from __future__ import annotations

from typing import Any

from deepprof.simulation import collectives, device_problems, growth, host_problems, inference, program
from deepprof.simulation.plan import RankPlan, SimulationRequest

MODULES: tuple[Any, ...] = (collectives, device_problems, growth, host_problems, inference, program)


def plan_scenario(name: str, request: SimulationRequest) -> RankPlan:
    """Return one rank's program in a scenario, from the function of these modules that is named after it."""
    function = f"plan_{name.replace('-', '_')}"
    plan: RankPlan = next(vars(module)[function] for module in MODULES if function in vars(module))(request)
    return plan
