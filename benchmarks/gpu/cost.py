"""What collecting costs: three loops under nothing, the library switched off and on, and torch.profiler, in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from benchmarks.gpu.counting import TITLES
from benchmarks.gpu.programs import LOOPS, Plan, run
from benchmarks.gpu.reader import Reader
from benchmarks.gpu.rows import Row, judge
from deepprof.collectors.live.packets import CollectionLevel

__all__ = ["MODES", "Costs", "check_cost", "judge_costs"]

MODES = ("nothing", "off", "deepprof", "torch")
TORCH_REPEATS = 2  # what torch.profiler records it keeps in memory
LAST_S = 5.0  # what the table needs at the end


@dataclass
class Costs:
    """Seconds of each loop under each mode, one median a round; rounds, and records lost."""

    seconds: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {loop: {mode: [] for mode in MODES} for loop in LOOPS}
    )
    rounds: int = 0
    records: int = 0
    lost: int = 0

    def overhead(self, loop: str, mode: str) -> list[float]:
        """Return what `mode` cost in each whole round, as a share of the time under nothing."""
        pairs = list(zip(self.seconds[loop][mode], self.seconds[loop]["nothing"], strict=False))[: self.rounds]
        return [taken / bare - 1 for taken, bare in pairs]


def check_cost(plan: Plan) -> Iterator[Row]:
    """Measure as many rounds as there is time for, at least one."""
    costs = Costs()
    while costs.rounds < plan.rounds:
        began = time.monotonic()
        at = costs.rounds % len(MODES)
        for mode in MODES[at:] + MODES[:at]:  # none is always the first
            measure(plan, mode, costs)
        costs.rounds += 1
        if plan.left_s < time.monotonic() - began + LAST_S:
            break
    yield from judge_costs(plan, costs)


def measure(plan: Plan, mode: str, costs: Costs) -> None:
    """Run all loops once under a mode."""
    repeats = min(plan.repeats, TORCH_REPEATS) if mode == "torch" else plan.repeats
    arguments = ["loops", *(f"{loop}={count}" for loop, count in plan.iterations.items()), "--repeats", str(repeats)]
    if mode in ("nothing", "torch"):
        found = run(plan, [*arguments, *(["--profile", "time"] if mode == "torch" else [])])["found"]
    else:
        with Reader(plan.folder / "a.sock", CollectionLevel.OFF if mode == "off" else CollectionLevel.ON) as reader:
            found = run(plan, arguments, reader=reader)["found"]
        costs.lost += reader.main.lost
        costs.records += reader.main.next
    for loop in LOOPS:
        costs.seconds[loop][mode].append(median(found[loop]["seconds"]))


def judge_costs(plan: Plan, costs: Costs) -> Iterator[Row]:
    """Hold the median over the rounds against the goals."""
    for loop in LOOPS:
        each_us = median(costs.seconds[loop]["nothing"]) / plan.iterations[loop] * 1e6
        off, ours, theirs = (costs.overhead(loop, mode) for mode in MODES[1:])
        figure = (
            f"{percent(ours)} of {each_us:,.1f} µs an iteration; off {percent(off)}; torch.profiler {percent(theirs)}; "
            f"rounds: {costs.rounds}"
        )
        goal = plan.goals[loop]
        disproof = f"a median over {goal:.0%} of the time" if goal < float("inf") else "nothing: a stand-in's time"
        yield judge(f"overhead: {TITLES[loop]}", median(ours) <= goal, figure, disproof)
    figure = f"{costs.lost:,} of {costs.records:,}"
    yield judge(
        "records lost while it was measured", costs.lost == 0 < costs.records, figure, "a jump in their numbers"
    )


def percent(costs: list[float]) -> str:
    """Return a median and how far the rounds lie apart."""
    return f"{median(costs):+.2%} ({min(costs):+.1%}…{max(costs):+.1%})"
