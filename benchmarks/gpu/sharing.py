"""The sharing study of the DeepProf paper (section V-A): two programs on one device, alone and together.

One program is bound by computing, one by copying. Alone each is allowed shares of the device's memory; together, a
quarter and a half each. An iteration's time is by the program's own clock, how busy the device is by our records. The
paper finds that the share changes nothing once the program fits, and that together both are slower, whatever the share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.marks import Marks, busy_ratio
from benchmarks.gpu.programs import Plan, Program, await_level, start_collected
from benchmarks.gpu.reader import NO_EVENTS, WORK, EventLog, Reader, Session
from benchmarks.gpu.rows import Row, Verdict
from deepprof.collectors.live.packets import CollectionLevel

__all__ = ["Configuration", "check_sharing", "judge_study"]

PROGRAMS = {"compute": "compute-bound", "copy": "copy-bound"}
TOGETHER = (0.25, 0.5)
FLAT_RATIO, SLOWER_RATIO = 1.1, 1.1
WHOLE = 0.95  # of a program's iterations, which have the same number of records


@dataclass(frozen=True, slots=True)
class Configuration:
    """One program at one share of the memory: its median iteration, and how busy its device was, by anybody.

    `whole_ratio` of its iterations have the records that most of them have.
    """

    program: str
    share: float
    together: bool
    iterations: int
    iteration_ns: float
    busy_ratio: float
    whole_ratio: float
    problem: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether the figures can be believed."""
        return not self.problem and 0 < self.busy_ratio <= 1 and self.whole_ratio >= WHOLE


def check_sharing(plan: Plan) -> Iterator[Row]:
    """Run both programs alone at all shares, then together."""
    found: list[Configuration] = []
    for program in PROGRAMS:
        found += measure(plan, [program], plan.shares)
    found += measure(plan, list(PROGRAMS), TOGETHER)
    for configuration in found:
        yield show(configuration, found)
    yield from judge_study(found)


def measure(plan: Plan, programs: Sequence[str], shares: Sequence[float]) -> list[Configuration]:
    """Run programs at the same time, share by share, and return what each did."""
    options = ["--shares", *(f"{share:g}" for share in shares)]
    with ExitStack() as stack:
        reader = stack.enter_context(Reader(plan.folder / "a.sock", make_consumer=EventLog))
        running = [
            stack.enter_context(start_collected(plan, ["shares", f"{name}=0", *options], reader)) for name in programs
        ]
        for program in running:
            program.reach("started")
        sessions = [await_level(plan, reader, program, CollectionLevel.ON) for program in running]
        resume_all(running)
        for share in shares:
            run_share(running, share, plan.share_s)
        results = [program.result()["found"] for program in running]
    return [each for share in shares for each in compare(programs, [r[f"{share:g}"] for r in results], sessions, share)]


def run_share(running: Sequence[Program], share: float, seconds: float) -> None:
    """Have programs run at a share of the memory, all of them for so long."""
    for step in (f"share {share:g}", "running"):
        for program in running:
            program.reach(step)
        if step != "running":
            resume_all(running)
    time.sleep(seconds)
    resume_all(running)


def resume_all(running: Sequence[Program]) -> None:
    for program in running:
        program.go()


def compare(
    programs: Sequence[str], results: Sequence[dict[str, Any]], sessions: Sequence[Session], share: float
) -> Iterator[Configuration]:
    """Return what programs that ran at the same time did, each over the time in which all of them ran."""
    together, problems = len(programs) > 1, [result["problem"] for result in results]
    if any(problems) or not all(result["marks"] for result in results):
        for program, problem in zip(programs, problems, strict=True):
            yield Configuration(program, share, together, 0, 0, 0, 0, problem or "no iteration")
        return
    marks = [Marks.read(result["marks"]) for result in results]
    begin_ns = max(int(each.begin_ns[0]) for each in marks)
    end_ns = min(int(each.end_ns[-1]) for each in marks)
    work = [work_of(session) for session in sessions]
    busy = busy_ratio(np.concatenate([NO_EVENTS, *work]), begin_ns, end_ns)
    for program, own, events in zip(programs, marks, work, strict=True):
        common = own.between(begin_ns, end_ns)
        time_ns = common.iteration_ns if len(common) else 0.0
        problem = "" if len(common) else "they did not run at the same time"
        yield Configuration(program, share, together, len(common), time_ns, busy, whole_ratio(events, own), problem)


def work_of(session: Session) -> Any:
    """Return a session's kernels, copies and memsets."""
    assert isinstance(session.consumer, EventLog)
    events = session.consumer.events
    return events[np.isin(events["activity"], WORK)]


def whole_ratio(events: Any, marks: Marks) -> float:
    """Return the share of iterations with as many records as most of them have."""
    places = marks.find((events["start_ns"] + events["end_ns"]) // 2)
    counts = np.bincount(places[places >= 0], minlength=len(marks))
    return float(np.mean(counts == np.bincount(counts).argmax())) if counts.any() else 0.0


def find_alone(found: Sequence[Configuration], program: str) -> list[Configuration]:
    """Return what a program did alone, those that fit."""
    return [each for each in found if each.program == program and not each.together and not each.problem]


def show(own: Configuration, found: Sequence[Configuration]) -> Row:
    """Return a configuration's row: measured, unless it cannot be believed."""
    how = "with the other" if own.together else "alone"
    title = f"sharing: {PROGRAMS[own.program]} {how}, {own.share:.0%} of memory"
    figure = own.problem or (
        f"{own.iteration_ns / 1e6:.3f} ms an iteration{compare_alone(own, found)}, device busy {own.busy_ratio:.1%}, "
        f"{own.iterations:,} iterations, {own.whole_ratio:.1%} with equal records"
    )
    disproof = f"device busy over 100 % or never, iterations of unequal records over {1 - WHOLE:.0%}"
    does_not_fit = bool(own.problem) and not own.together
    verdict = Verdict.MEASURED if own.is_sound or does_not_fit else Verdict.FAILED
    return Row(title, figure, verdict, disproof)


def compare_alone(own: Configuration, found: Sequence[Configuration]) -> str:
    """Return how much slower it is than alone at the same share."""
    alone = [each for each in find_alone(found, own.program) if each.share == own.share]
    if not own.together or not alone:
        return ""
    return f" (x {own.iteration_ns / alone[0].iteration_ns:.2f} of alone, when it was busy {alone[0].busy_ratio:.1%})"


def judge_study(found: Sequence[Configuration]) -> Iterator[Row]:
    """Compare with what the paper found; a device that differs is no failure of ours."""
    for program, title in PROGRAMS.items():
        times = [each.iteration_ns for each in find_alone(found, program)]
        spread = max(times) / min(times) if times else 0.0
        yield agree(
            f"sharing: memory changes nothing for the {title}",
            bool(times) and spread <= FLAT_RATIO,
            f"slowest x {spread:.2f} of the fastest share",
            f"over x {FLAT_RATIO}",
        )
    ratios = [
        each.iteration_ns / alone.iteration_ns
        for each in found
        if each.together and not each.problem
        for alone in find_alone(found, each.program)
        if alone.share == each.share
    ]
    figure = ", ".join(f"x {ratio:.2f}" for ratio in ratios) or "nothing to compare"
    ok = bool(ratios) and min(ratios) >= SLOWER_RATIO
    yield agree("sharing: together both are slower", ok, figure, f"one under x {SLOWER_RATIO} of alone")


def agree(check: str, is_as_paper: bool, figure: str, disproof: str) -> Row:
    """Return a row that only states whether it is as in the paper."""
    return Row(check, f"{figure}: {'as' if is_as_paper else 'unlike'} the paper", Verdict.MEASURED, disproof)
