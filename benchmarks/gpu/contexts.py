"""Calling contexts of what runs on a GPU: who launched what, held against torch.profiler of the same programs.

Records join launches as in the agent, by its own `ContextDeviceTimes`. What torch.profiler has no operator for, the
launches of a CUDA graph, is counted: the program launches each within a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.gpu.coexistence import SLACK_NS
from benchmarks.gpu.counting import TITLES, Counts, between, describe_difference, profile_alone, read_counts
from benchmarks.gpu.mock import REPLAYING
from benchmarks.gpu.programs import Failed, Plan, await_level, run, start_collected
from benchmarks.gpu.reader import ACTIVITIES, EventLog, Reader, Session, plain
from benchmarks.gpu.rows import Row, judge
from benchmarks.gpu.second_client import REFUSED
from deepprof.collectors.live.packets import CONTEXT, CONTEXT_SUM, LAUNCH, CollectionLevel
from deepprof.live.agent.device_times import ContextDeviceTimes

__all__ = ["ToldContexts", "check_contexts", "count_by_operator"]

MODES = ("operators", "python")
LAUNCHING = ("launch", "train")  # loops whose work operators launch
PYTHON_FRAME, OPERATOR = 0, 1  # kinds of a context
ITERATE = "iterate"  # the function that is one iteration of a loop
LOST, NO_CALLBACKS = "launches came faster than they could be told", "CUPTI gives no callbacks here"


@dataclass(frozen=True)
class ToldContexts:
    """Contexts by their ids: the operator that each is or is in, and whether an iteration's function is around it."""

    operators: list[str]
    is_iterating: list[bool]

    @classmethod
    def read(cls, session: Session) -> ToldContexts:
        """Return those that a session was told."""
        operators, is_iterating = [""], [False]
        for _, parent, name, _, kind in np.concatenate([np.zeros(0, CONTEXT), *session.contexts]).tolist():
            text = session.names[name - 1] if name else ""
            operators.append(text if kind == OPERATOR else operators[parent])
            is_iterating.append(is_iterating[parent] or (kind == PYTHON_FRAME and text.endswith(f": {ITERATE}")))
        return cls(operators, is_iterating)


@dataclass
class LaunchedWork:
    """Records that joined launches: how often by (activity, "NAME in OPERATOR"), their time, and what joined none.

    `iterating` of the joined ones were launched below the function that is one iteration.
    """

    counts: Counts = field(default_factory=Counter)
    joined: int = 0
    unjoined: int = 0
    iterating: int = 0
    context_ns: int = 0
    record_ns: int = 0

    def add(self, other: LaunchedWork) -> None:
        """Add what others launched."""
        self.counts += other.counts
        self.joined, self.unjoined = self.joined + other.joined, self.unjoined + other.unjoined
        self.iterating += other.iterating
        self.context_ns, self.record_ns = self.context_ns + other.context_ns, self.record_ns + other.record_ns


def check_contexts(plan: Plan) -> Iterator[Row]:
    """Compare contexts with torch.profiler's operators, next to other clients of CUPTI, and examine graphs."""
    alone = profile_alone(plan)
    expected = {loop: count_by_operator(alone[loop]) for loop in LAUNCHING}
    for mode in MODES:
        yield from check_mode(replace(plan, contexts=mode), expected)
    yield check_graph_launches(replace(plan, contexts="operators", graphs="launches"))
    yield from check_session(replace(plan, contexts="python"), alone, expected)
    yield check_without_contexts(plan)


def count_by_operator(rows: list[list[Any]]) -> Counts:
    """Return how often a program printed each (activity, "NAME in OPERATOR")."""
    found = Counts()
    for activity, name, operator, count in rows:
        found[activity, describe_work(name, operator)] += count
    return found


def describe_work(name: str, operator: str) -> str:
    """Return what a record is and who launched it."""
    return f"{name} in {operator or 'no operator'}"


# ---- what operators launched ----


def check_mode(plan: Plan, expected: dict[str, Counts]) -> Iterator[Row]:
    """Run loops with contexts of one mode, while another client has asked to subscribe."""
    title, loops = f"--contexts {plan.contexts}", (*LAUNCHING, "replay")
    with Reader(plan.folder / "a.sock", make_consumer=EventLog) as reader:
        found = run(plan, ["contexts", *(f"{loop}={plan.checks}" for loop in loops)], reader=reader)["found"]
    session, windows = reader.main, {loop: found["loops"][loop]["window_ns"] for loop in loops}
    work = {loop: join(session, between(session, *windows[loop])) for loop in loops}
    for loop in LAUNCHING:
        yield judge_launches(f"{title}: {TITLES[loop]}", expected[loop], work[loop])
    if plan.contexts == "python":
        yield judge_functions(f"{title}: functions", work["launch"])
    yield judge_replays(f"{title}: CUDA graph", plan, between(session, *windows["replay"]), work["replay"])
    yield judge_times(f"{title}: device time", work)
    yield judge_losses(f"{title}: records lost", session)
    yield judge_answer(f"{title}: a second subscriber", found["answer"], REFUSED)


def join(session: Session, events: Any) -> LaunchedWork:
    """Join records with all launches that a session was told, as the agent does."""
    told, work = ToldContexts.read(session), LaunchedWork()
    for activity, name in np.unique(events[["activity", "name"]]).tolist():
        rows = events[(events["activity"] == activity) & (events["name"] == name)]
        text = plain(session.names[name - 1] if name else "")
        work.add(join_alike(session, rows, told, (ACTIVITIES[activity], text)))
    return work


def join_alike(session: Session, rows: Any, told: ToldContexts, key: tuple[str, str]) -> LaunchedWork:
    """Join records of one activity and name."""
    times = ContextDeviceTimes()
    times.add_launches(np.concatenate([np.zeros(0, LAUNCH), *session.launches]), 0)
    times.add_events(rows, 0)
    times.join(0)
    work = LaunchedWork(record_ns=int((rows["end_ns"] - rows["start_ns"]).sum()))
    for context in np.flatnonzero(times.counts).tolist():
        count = int(times.counts[context])
        work.counts[key[0], describe_work(key[1], told.operators[context])] += count
        work.joined += count
        work.iterating += count * told.is_iterating[context]
    work.context_ns, work.unjoined = int(times.times_ns.sum()), len(rows) - work.joined
    return work


def judge_launches(title: str, expected: Counts, work: LaunchedWork) -> Row:
    """Return whether each operator launched what torch.profiler states."""
    said = describe_difference(expected, work.counts, "torch.profiler", "ours")
    figure = f"{work.joined:,} records in a context, {work.unjoined:,} in none; {said}"
    ok = work.counts == expected and bool(expected) and not work.unjoined
    return judge(title, ok, figure, "a kernel of an operator counted differently, or in no context")


def judge_functions(title: str, work: LaunchedWork) -> Row:
    """Return whether all that was launched is below the function of Python that launched it."""
    figure = f"{work.iterating:,} of {work.joined + work.unjoined:,} records below the function that launched them"
    ok = work.iterating == work.joined + work.unjoined > 0
    return judge(title, ok, figure, "a record below another function or none")


def judge_replays(title: str, plan: Plan, events: Any, work: LaunchedWork) -> Row:
    """Return whether each launch of a graph is one, and has all of its nodes in the range around it."""
    inside = sum(count for (_, text), count in work.counts.items() if text.endswith(f" in {REPLAYING}"))
    launches, most = len(np.unique(events["correlation"])), len(events)
    figure = f"{launches:,} launches for {plan.checks:,}; {inside:,} of {most:,} records in the range around them"
    ok = launches == plan.checks and inside == most > 0
    return judge(title, ok, figure, "more or fewer launches, or a record in another context or none")


def judge_times(title: str, work: dict[str, LaunchedWork]) -> Row:
    """Return whether the time of all contexts together is that of all records."""
    contexts, records = (sum(getattr(each, name) for each in work.values()) for name in ("context_ns", "record_ns"))
    figure = f"{contexts / 1e6:,.3f} ms in contexts, {records / 1e6:,.3f} ms of records"
    return judge(title, contexts == records > 0, figure, "a nanosecond more or less")


def judge_losses(title: str, session: Session) -> Row:
    """Return whether all records came, and all launches were told."""
    told = sum(map(len, session.launches))
    figure = f"{session.lost:,} of {session.next:,} records, {told:,} launches told"
    ok = session.lost == 0 < told and session.ended and not any(LOST in notice for notice in session.notices)
    return judge(title, ok, "; ".join([figure, *session.notices]), "a jump in their numbers, or launches left out")


def check_graph_launches(plan: Plan) -> Row:
    """Run the graph with one record a launch."""
    with Reader(plan.folder / "a.sock", make_consumer=EventLog) as reader:
        window = run(plan, ["loops", f"replay={plan.checks}"], reader=reader)["found"]["replay"]["window_ns"]
    assert isinstance(reader.main.consumer, EventLog)
    events = reader.main.consumer.events
    events = events[(events["start_ns"] >= window[0]) & (events["start_ns"] <= window[1])]
    events = events[events["activity"] == ACTIVITIES.index("graph")]
    return judge_replays("--contexts operators: graph by launch", plan, events, join(reader.main, events))


# ---- other clients of CUPTI ----


def judge_answer(title: str, answer: int, expected: int) -> Row:
    """Return whether CUPTI answered a second client as we state that it does."""
    return judge(title, answer == expected, f"CUPTI answered {answer}", f"another answer than {expected}")


def check_without_contexts(plan: Plan) -> Row:
    """Have a client ask to subscribe while we collect without contexts."""
    with Reader(plan.folder / "a.sock") as reader:
        found = run(plan, ["contexts", "compute=1"], reader=reader)["found"]
    return judge_answer("--contexts off: a second subscriber", found["answer"], 0)


def check_session(plan: Plan, alone: dict[str, list[list[Any]]], expected: dict[str, Counts]) -> Iterator[Row]:
    """Run sessions of torch.profiler while contexts are collected; compare what it saw, and contexts around it."""
    with (
        Reader(plan.folder / "a.sock", make_consumer=EventLog) as reader,
        start_collected(plan, ["session", *(f"{loop}={plan.checks}" for loop in LAUNCHING)], reader) as program,
    ):
        program.reach("started")
        session = await_level(plan, reader, program, CollectionLevel.ON)
        program.go()
        program.reach("profiled")
        with suppress(Failed):  # where collecting does not begin again, the last row reports it
            await_level(plan, reader, program, CollectionLevel.ON)
        border = len(session.sums)
        program.go()
        found = program.result()["found"]
    without, beside = ({loop: read_counts(rows[loop]) for loop in LAUNCHING} for rows in (alone, found["counts"]))
    said = "; ".join(describe_difference(without[loop], beside[loop], "without us", "with us") for loop in LAUNCHING)
    yield judge("torch.profiler beside contexts", without == beside, said, "a kernel that it counts differently")
    for phase in ("before", "after"):
        work = {loop: join(session, phase_events(session, found[phase][loop])) for loop in LAUNCHING}
        yield judge_phase(phase, session, work, expected, [] if phase == "before" else session.sums[border:])


def phase_events(session: Session, marks: list[list[int]]) -> Any:
    """Return the records of marked iterations."""
    return between(session, marks[0][0] - SLACK_NS, marks[-1][1] + SLACK_NS)


def judge_phase(
    phase: str, session: Session, work: dict[str, LaunchedWork], expected: dict[str, Counts], sums: list[Any]
) -> Row:
    """Return whether contexts have what they launched.

    After a session of a torch.profiler that stays subscribed CUPTI shows of no launch any more. Then the library has to
    report it, and the time on the host of the same operators (`sums` since then) has to go on.
    """
    said = [describe_difference(expected[loop], work[loop].counts, "torch.profiler", "ours") for loop in LAUNCHING]
    ok = all(work[loop].counts == expected[loop] and not work[loop].unjoined for loop in LAUNCHING)
    is_told = any(NO_CALLBACKS in notice for notice in session.notices)
    if not ok and sums and is_told and not any(each.joined for each in work.values()):
        names = {text.rpartition(" in ")[2] for counts in expected.values() for _, text in counts}
        going_on = names & count_begun(session, sums).keys()
        ok = going_on == names
        said = [f"no time of the device, as it says; {len(going_on)} of {len(names)} operators go on"]
    figure = "; ".join([*said, *session.notices])
    disproof = "contexts without what they launched and without a word, or an operator that is told of no more"
    return judge(f"contexts {phase} its session", ok, figure, disproof)


def count_begun(session: Session, sums: list[Any]) -> Counter[str]:
    """Return how often each operator began, by sums."""
    told, found = ToldContexts.read(session), Counter[str]()
    rows = np.concatenate([np.zeros(0, CONTEXT_SUM), *sums])
    for context, count in rows[rows["count"] > 0][["context", "count"]].tolist():
        found[told.operators[context]] += count
    return found
