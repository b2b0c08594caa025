"""Our library next to torch.profiler in one process: what that sees, and what we see before and after its session.

After Kineto's first session CUPTI's clock can be another one than before (its rdtsc). Counts do not show that, so the
records are kept against the times that the program itself wrote down: each iteration has to be where it was, be as
long as it was, and be found by the miner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.gpu.counting import TITLES, Counts, count_alone, describe_difference, read_counts
from benchmarks.gpu.marks import Marks, Placement, compare_pace, compare_times, mine
from benchmarks.gpu.programs import Failed, Plan, await_level, start_collected, wait_until
from benchmarks.gpu.reader import NO_EVENTS, WORK, EventLog, Reader, Session
from benchmarks.gpu.rows import Row, Verdict, judge
from deepprof.collectors.live.packets import CollectionLevel

__all__ = ["check_coexistence", "check_without_hook"]

SESSION_LOOPS = ("launch", "graph", "train")
SLACK_NS = 5_000_000  # that a record may be outside of its iteration: what two clocks are apart at the worst
PACE_RATIO = 0.01  # that a phase may last longer by its records than by the program's clock


@dataclass
class ProfiledRun:
    """What a process gave in which torch.profiler ran between two phases of marked iterations."""

    counts: dict[str, Counts]
    marks: dict[str, dict[str, Marks]]  # by phase and loop
    events: dict[str, Any]  # by phase
    session: Session = field(default_factory=Session)


def check_coexistence(plan: Plan) -> Iterator[Row]:
    """Run torch.profiler in a job that is collected, with the hook that steps aside for it."""
    alone = count_alone(plan)
    beside = run_beside(plan, hook=True)
    with_us, without = add_up(beside.counts), add_up({loop: alone[loop] for loop in SESSION_LOOPS})
    yield judge(
        "torch.profiler, with us and without",
        with_us == without and bool(without),
        describe_difference(without, with_us, "without us", "with us"),
        "a kernel that it counts differently while we are in the process",
    )
    expected = {loop: round(sum(alone[loop].values()) / plan.checks) for loop in SESSION_LOOPS}
    yield judge_phase(beside, "before", expected)
    yield judge_phase(beside, "after", expected)
    said = f"{describe_gap(beside.session) or 'not a word'}; {beside.session.lost:,} records lost beside it"
    yield judge("our gap meanwhile is marked", bool(describe_gap(beside.session)), said, "a gap without a reason")


def check_without_hook(plan: Plan) -> Iterator[Row]:
    """Do the same without the hook (`python -I`): nothing shows us of the session then, and the job has to live."""
    slow = plan.variables | {"DEEPPROF_RETRY_MS": str(plan.retry_ms)}
    beside = run_beside(replace(plan, variables=slow), hook=False)
    parts = [describe_times(times) for times in compare_phase(beside, "after", {}).values()]
    seen = sum(add_up(beside.counts).values())
    figure = f"torch.profiler saw {seen:,}; after it {', '.join(parts)}; {describe_session(beside.session)}"
    yield Row("beside torch.profiler without the hook", figure, Verdict.MEASURED, "the job dies")


def run_beside(plan: Plan, *, hook: bool) -> ProfiledRun:
    """Run the program, and part its records where collecting begins again."""
    arguments = ["session", *(f"{loop}={plan.checks}" for loop in SESSION_LOOPS), *([] if hook else ["--works"])]
    with (
        Reader(plan.folder / "a.sock", make_consumer=EventLog) as reader,
        start_collected(plan, arguments, reader, hook=hook) as program,
    ):
        program.reach("started")
        session = await_level(plan, reader, program, CollectionLevel.ON)
        program.go()
        program.reach("profiled")
        with suppress(Failed):  # where it does not come back, the rows report it
            await_level(plan, reader, program, CollectionLevel.ON)
        records = session.records
        if not hook:  # it stays away from another profiler for a while
            wait_until(lambda: session.records > records, plan.patience_s)
        assert isinstance(session.consumer, EventLog)
        pieces = session.consumer.pieces
        border = len(pieces)
        program.go()
        found = program.result()["found"]
    marks = {phase: {loop: Marks.read(found[phase][loop]) for loop in SESSION_LOOPS} for phase in ("before", "after")}
    events = {"before": join(pieces[:border]), "after": join(pieces[border:])}
    return ProfiledRun({loop: read_counts(found["counts"][loop]) for loop in SESSION_LOOPS}, marks, events, session)


def join(pieces: list[Any]) -> Any:
    """Return kernels, copies and memsets by start."""
    events = np.concatenate([NO_EVENTS, *pieces])
    events = events[np.isin(events["activity"], WORK)]
    return events[np.argsort(events["start_ns"], kind="stable")]


def add_up(counts: dict[str, Counts]) -> Counts:
    """Return the counts of all loops together."""
    return sum(counts.values(), Counter())


def judge_phase(beside: ProfiledRun, phase: str, expected: dict[str, int]) -> Row:
    """Return whether all iterations of a phase are there, where and as long as they were."""
    marks = list(beside.marks[phase].values())
    times = compare_phase(beside, phase, expected)
    pace, slack = compare_pace(since(beside.events[phase], marks[0]), marks)
    mined, wanted = mine(of_loop(beside, phase, "train")), len(beside.marks[phase]["train"])
    in_time = all(each.whole == each.iterations and each.outside_ns <= SLACK_NS for each in times.values())
    is_right = in_time and abs(pace - 1) <= PACE_RATIO + slack and wanted - 1 <= mined <= wanted
    parts = [f"{TITLES[loop]} {describe_times(each)}" for loop, each in times.items()]
    why = "" if is_right else f"; {len(beside.events[phase]):,} records; {describe_session(beside.session)}"
    return judge(
        f"our iterations {phase} its session",
        is_right,
        f"{', '.join(parts)}; times x {pace:.4f} of the program's; {mined} of {wanted} mined{why}",
        f"a record missing, or {SLACK_NS / 1e6:g} ms outside of its iteration; times over {PACE_RATIO:.0%} apart",
    )


def compare_phase(beside: ProfiledRun, phase: str, expected: dict[str, int]) -> dict[str, Placement]:
    """Return how the records of a phase are in its iterations, by loop; without `expected`, as many as most have."""
    found = {}
    for loop, marks in beside.marks[phase].items():
        events = beside.events[phase]
        found[loop] = compare_times(events, marks, expected.get(loop) or most_common(events, marks))
    return found


def most_common(events: Any, marks: Marks) -> int:
    """Return how many records most iterations have, at least one."""
    places = marks.find(events["start_ns"])
    return max(1, int(np.median(np.bincount(places[places >= 0], minlength=len(marks)))))


def of_loop(beside: ProfiledRun, phase: str, loop: str) -> Any:
    """Return the records of one loop's iterations."""
    events = beside.events[phase]
    return events[beside.marks[phase][loop].find(events["start_ns"]) >= 0]


def since(events: Any, marks: Marks) -> Any:
    """Return the records from the first iteration on: before it the program warms up."""
    return events[events["start_ns"] >= marks.begin_ns[0] - SLACK_NS]


def describe_times(times: Placement) -> str:
    """Return how many iterations are whole, and how far records are outside."""
    return f"{times.whole}/{times.iterations} (at most {times.outside_ns / 1e6:.2f} ms outside)"


def describe_gap(session: Session) -> str:
    """Return what the library stated of another profiler: in a gap's reason, or in words."""
    marked = f"a gap, reason BUSY, {session.reasons['BUSY']} x" if session.reasons["BUSY"] else ""
    return marked or (session.notices[-1] if session.notices else "")


def describe_session(session: Session) -> str:
    """Return all that the library stated, and for which reasons records are missing."""
    gaps = ", ".join(f"{reason} {count} x" for reason, count in session.reasons.items() if reason != "NONE")
    return f"gaps: {gaps or 'none'}; {session.lost:,} lost; it said: {' | '.join(session.notices) or 'nothing'}"
