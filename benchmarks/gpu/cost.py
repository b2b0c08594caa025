"""What collecting costs: processes that differ in nothing but what collects from them take turns on one device.

All of them are started before, so that a turn of some tenths of a second follows the other, and each round has all of
them in the opposite order of the one before: a machine that becomes slower does so for all. Two of them are without
anything: what these two are apart is what the measurement cannot show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks.gpu.counting import TITLES
from benchmarks.gpu.devices import GRAPH_NODES, TINY_KERNELS
from benchmarks.gpu.programs import LOOPS, Plan, Program, await_level, environment, start
from benchmarks.gpu.reader import Reader
from benchmarks.gpu.rows import Row, Verdict, judge
from deepprof.collectors.live.packets import CollectionLevel

__all__ = ["MODES", "Costs", "check_cost", "judge_costs"]

# The second is the first once more; the last two collect contexts next to what `deepprof` does.
MODES = ("nothing", "again", "off", "deepprof", "launches", "torch", "operators", "python")
COLLECTED = {"off": CollectionLevel.OFF} | dict.fromkeys(
    ("deepprof", "launches", "operators", "python"), CollectionLevel.ON
)
CONTEXTS = ("operators", "python")
ONLY = {"launches": ("graph",), **dict.fromkeys(CONTEXTS, ("launch", "compute"))}  # a replay is no operator
SAID = {
    "off": "off",
    "launches": "--graphs launches",
    "torch": "torch.profiler",
    "again": "nothing against nothing",
}
KERNELS = {"launch": TINY_KERNELS, "graph": GRAPH_NODES}  # of an iteration
LAST_S = 5.0  # what the table needs at the end


@dataclass
class Costs:
    """Seconds of every loop under each mode, one median a round; rounds, and records lost."""

    seconds: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {loop: {mode: [] for mode in MODES} for loop in LOOPS}
    )
    rounds: int = 0
    records: int = 0
    lost: int = 0

    def overhead(self, loop: str, mode: str) -> list[float]:
        """Return what `mode` cost in every whole round, as a share of the time under nothing in the same round."""
        return self.compare(loop, mode, "nothing")

    def compare(self, loop: str, mode: str, other: str) -> list[float]:
        """Return how much longer `mode` took than another in every whole round, as a share."""
        pairs = list(zip(self.seconds[loop][mode], self.seconds[loop][other], strict=False))[: self.rounds]
        return [taken / bare - 1 for taken, bare in pairs]


def check_cost(plan: Plan) -> Iterator[Row]:
    """Measure as many rounds as there is time for, at least one."""
    costs = Costs()
    with ExitStack() as stack:
        readers = {mode: stack.enter_context(Reader(plan.folder / mode, level)) for mode, level in COLLECTED.items()}
        with ExitStack() as running:
            programs = start_all(plan, readers, running)
            take_turns(plan, programs, costs)
            for program in programs.values():
                program.go()
                program.result()
    for mode in COLLECTED.keys() - {"off"}:
        costs.lost += readers[mode].main.lost
        costs.records += readers[mode].main.next
    yield from judge_costs(plan, costs)


def start_all(plan: Plan, readers: dict[str, Reader], running: ExitStack) -> dict[str, Program]:
    """Return a program for every mode, ready to be told whose turn it is."""
    loops = [f"{loop}={count}" for loop, count in plan.iterations.items()]
    arguments = ["turns", *loops, "--repeats", str(plan.repeats)]
    programs = {}
    for mode in MODES:
        own = replace(plan, graphs="launches") if mode == "launches" else plan
        own = replace(own, contexts=mode) if mode in CONTEXTS else own
        variables = environment(own, readers[mode].path if mode in readers else None)
        profile = ["--profile", "time"] if mode == "torch" else []
        programs[mode] = running.enter_context(start(own, [*arguments, *profile], variables))
    for mode, program in programs.items():
        program.reach("started")
        if mode in readers:
            await_level(plan, readers[mode], program, readers[mode].level)
        program.go()
        program.reach("ready")
    return programs


def take_turns(plan: Plan, programs: dict[str, Program], costs: Costs) -> None:
    """Time all loops under all modes, round by round."""
    longest_s = 0.0
    while costs.rounds < plan.rounds and (not costs.rounds or plan.left_s > longest_s + LAST_S):
        began = time.monotonic()
        modes = MODES[:: -1 if costs.rounds % 2 else 1]
        for loop in LOOPS:
            for mode in modes:
                if loop in ONLY.get(mode, LOOPS):
                    costs.seconds[loop][mode].append(median(programs[mode].take_turn(loop)))
        costs.rounds += 1
        longest_s = max(longest_s, time.monotonic() - began)


def judge_costs(plan: Plan, costs: Costs) -> Iterator[Row]:
    """Hold the median over the rounds against the goals."""
    for loop in LOOPS:
        yield judge_loop(costs, loop, plan.iterations[loop], plan.goals[loop])
    for loop in ONLY["python"]:
        yield show_contexts(costs, loop, plan.iterations[loop])
    figure = f"{costs.lost:,} of {costs.records:,}"
    yield judge(
        "records lost while it was measured", costs.lost == 0 < costs.records, figure, "a jump in their numbers"
    )


def judge_loop(costs: Costs, loop: str, iterations: int, goal: float) -> Row:
    """Return what a loop costs. If it is no farther from the goal than one without anything from another: undecided."""
    bare_us = median(costs.seconds[loop]["nothing"]) / iterations * 1e6
    ours = costs.overhead(loop, "deepprof")
    others = [f"{SAID[mode]} {percent(costs.overhead(loop, mode))}" for mode in SAID if costs.seconds[loop][mode]]
    each = f", {median(ours) * bare_us / KERNELS[loop] * 1e3:+,.0f} ns a kernel" if loop in KERNELS else ""
    figure = f"{percent(ours)} of {bare_us:,.1f} µs an iteration{each}; {'; '.join(others)}; rounds: {costs.rounds}"
    disproof = f"a median over {goal:.0%} of the time" if goal < float("inf") else "nothing: a stand-in's time"
    if abs(median(ours) - goal) < abs(median(costs.overhead(loop, "again"))):
        return Row(f"overhead: {TITLES[loop]}", f"{figure}; too uneven to tell", Verdict.MEASURED, disproof)
    return judge(f"overhead: {TITLES[loop]}", median(ours) <= goal, figure, disproof)


def show_contexts(costs: Costs, loop: str, iterations: int) -> Row:
    """Return what an iteration needs without contexts and with them; no iteration is left out, and no goal is set."""
    parts = [f"off {median(costs.seconds[loop]['deepprof']) / iterations * 1e6:,.1f} µs an iteration"]
    for mode in CONTEXTS:
        taken_us = median(costs.seconds[loop][mode]) / iterations * 1e6
        parts.append(f"{mode} {taken_us:,.1f} µs, {percent(costs.compare(loop, mode, 'deepprof'))}")
    figure = f"{'; '.join(parts)}; rounds: {costs.rounds}"
    return Row(f"--contexts: {TITLES[loop]}", figure, Verdict.MEASURED, "nothing: no goal is set")


def percent(costs: list[float]) -> str:
    """Return a median and how far the rounds are apart."""
    return f"{median(costs):+.2%} ({min(costs):+.1%}…{max(costs):+.1%})"
