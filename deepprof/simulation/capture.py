"""Plays plans on machines as the profiler sees them: from the tail of one iteration into the middle of another.

All ranks of a job play in lockstep: they run one program, and meet in its collectives, which end together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from deepprof.simulation.machine import Machine
from deepprof.simulation.plan import RankPlan
from deepprof.simulation.steps import Close, GraphReplay, Launch, Open, Reduce, Step

TAIL_SHARE = 0.3  # of the iteration that was running when the capture began
CUT_SHARE = 0.45  # of the iteration that was running when it ended
NOTICE_NS = 1_500  # within which all ranks see that a collective is done


def record(
    machines: Sequence[Machine], plans: Sequence[RankPlan], iterations: int, *, annotate: bool
) -> list[list[int]]:
    """Play the capture; per machine return each iteration's first kernel, the unfinished last one's included."""
    builds = [partial(_annotated, plan.build) if annotate else plan.build for plan in plans]
    firsts: list[list[int]] = [[] for _ in machines]
    _play(machines, [keep_tail(list(build(-1))) for build in builds])
    for index in range(iterations):
        _note_first(machines, firsts)
        _play(machines, [build(index) for build in builds])
    _note_first(machines, firsts)
    _play(machines, [keep_head(list(build(iterations))) for build in builds])
    return firsts


def _note_first(machines: Sequence[Machine], firsts: Sequence[list[int]]) -> None:
    """Record that the next kernel of every machine begins an iteration."""
    for machine, found in zip(machines, firsts, strict=True):
        found.append(len(machine.kernels))


def _annotated(build: Callable[[int], Iterable[Step]], index: int) -> Iterator[Step]:
    """Yield an iteration's steps inside the range that `profiler.step()` writes."""
    yield Open(f"ProfilerStep#{index + 10}")
    yield from build(index)
    yield Close()


def _play(machines: Sequence[Machine], programs: Iterable[Iterable[Step]]) -> None:
    """Play the steps of one program per machine, in order."""
    for steps in zip(*programs, strict=True):
        if isinstance(steps[0], Reduce):
            _meet(machines, steps[0])
            continue
        for machine, step in zip(machines, steps, strict=True):
            machine.play(step)


def _meet(machines: Sequence[Machine], step: Reduce) -> None:
    """Play a collective: it begins on every rank independently, and ends some time after the last rank began."""
    arrivals = [machine.arrive() for machine in machines]
    last = max(arrival.begin_ns for arrival in arrivals)
    end = last + machines[0].vary(step.ns, 0.04)
    for machine, arrival in zip(machines, arrivals, strict=True):
        machine.leave(step, arrival, end + machine.vary(NOTICE_NS, 1))


def keep_tail(steps: Sequence[Step]) -> list[Step]:
    """Return the last `TAIL_SHARE` of the steps; each kernel of a graph counts as a step."""
    left = round(sum(map(_count_steps, steps)) * TAIL_SHARE)
    kept: list[Step] = []
    for step in reversed(steps):
        if left <= 0:
            break
        skipped = max(0, _count_steps(step) - left)
        kept.append(_shorten(step, skipped, _count_steps(step)))
        left -= _count_steps(step)
    return kept[::-1]


def keep_head(steps: Sequence[Step]) -> list[Step]:
    """Return the steps before the kernel at `CUT_SHARE` of the kernels."""
    left = round(sum(map(_count_kernels, steps)) * CUT_SHARE)
    kept: list[Step] = []
    for step in steps:
        if _count_kernels(step) > left:
            return [*kept, _shorten(step, 0, left)] if left else kept
        kept.append(step)
        left -= _count_kernels(step)
    return kept


def _count_steps(step: Step) -> int:
    return len(step.launches) if isinstance(step, GraphReplay) else 1


def _count_kernels(step: Step) -> int:
    """Return how many kernels of the main stream a step runs."""
    return _count_steps(step) if isinstance(step, Launch | GraphReplay) else 0


def _shorten(step: Step, first: int, end: int) -> Step:
    """Return a graph with its kernels from `first` to before `end`; other steps stay whole."""
    if not isinstance(step, GraphReplay):
        return step
    return replace(step, launches=step.launches[first:end], first_node=step.first_node + first)
