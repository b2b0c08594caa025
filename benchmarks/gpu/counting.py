"""Whether our records are those of torch.profiler, kernel for kernel, in processes apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.gpu.programs import Plan, run
from benchmarks.gpu.reader import WORK, EventLog, Reader, Session
from benchmarks.gpu.rows import Row, Verdict, judge

__all__ = [
    "CHECKED",
    "TITLES",
    "Counts",
    "between",
    "check_counts",
    "count_alone",
    "describe_difference",
    "profile_alone",
    "read_counts",
]

Counts = Counter[tuple[str, str]]
CHECKED = ("launch", "compute", "graph", "train")
TITLES = {"launch": "launch-bound", "compute": "compute-bound", "graph": "CUDA graph", "train": "training"}
SHOWN = 3  # differences in one line


def check_counts(plan: Plan) -> Iterator[Row]:
    """Compare the records of all loops with torch.profiler's of the same loops in its own process."""
    alone = count_alone(plan)
    with Reader(plan.folder / "a.sock", make_consumer=EventLog) as reader:
        printed = run(plan, ["loops", *(f"{loop}={plan.checks}" for loop in CHECKED)], reader=reader)
    found, words = printed["found"], [f"{name} {text}" for name, text in printed["device"].items()]
    yield Row("the device", ", ".join(words), Verdict.MEASURED)
    for loop in CHECKED:
        ours = reader.main.count(between(reader.main, *found[loop]["window_ns"]))
        figure = f"{summarize(ours)}; {describe_difference(alone[loop], ours, 'torch.profiler', 'ours')}"
        disproof = "a kernel name counted differently"
        yield judge(
            f"records as torch.profiler's: {TITLES[loop]}", ours == alone[loop] and bool(ours), figure, disproof
        )
    session = reader.main
    ok = session.lost == 0 and session.ended and session.records > 0
    figure = "; ".join([f"{session.lost:,} of {session.next:,}", *session.notices])
    yield judge("records lost on the way", ok, figure, "a jump in their numbers")


def count_alone(plan: Plan) -> dict[str, Counts]:
    """Return what torch.profiler counts without us, by loop."""
    return {loop: read_counts(rows) for loop, rows in profile_alone(plan).items()}


def profile_alone(plan: Plan) -> dict[str, list[list[Any]]]:
    """Return what torch.profiler counts without us as a program prints it, by loop; it is asked once in a run."""
    kept = plan.folder / "alone.json"
    if not kept.exists():
        arguments = ["loops", *(f"{loop}={plan.checks}" for loop in CHECKED), "--profile", "count"]
        kept.write_text(json.dumps(run(plan, arguments)["found"]))
    return {loop: found["counts"] for loop, found in json.loads(kept.read_text()).items()}


def read_counts(rows: list[list[Any]]) -> Counts:
    """Return counts by activity and name, of rows that also have the operator that launched it."""
    found = Counts()
    for activity, name, _, count in rows:
        found[activity, name] += count
    return found


def between(session: Session, began_ns: int, ended_ns: int) -> Any:
    """Return the kept events of a session, those that torch.profiler records too, that began in a time."""
    assert isinstance(session.consumer, EventLog)
    events = session.consumer.events
    inside = (events["start_ns"] >= began_ns) & (events["start_ns"] <= ended_ns)
    return events[inside & np.isin(events["activity"], WORK)]


def summarize(counts: Counts) -> str:
    """Return counts by kind in words."""
    by_kind = Counter[str]()
    for (activity, _), count in counts.items():
        by_kind[activity] += count
    return ", ".join(f"{count:,} {activity}" for activity, count in sorted(by_kind.items())) or "nothing"


def describe_difference(expected: Counts, found: Counts, expected_by: str, found_by: str) -> str:
    """Return in words how two counts differ, in both directions, the largest difference first."""
    if expected == found:
        return f"the same for all {len(found)} names" if expected else "both saw nothing"
    keys = sorted({*expected, *found}, key=lambda key: (-abs(expected[key] - found[key]), key))
    apart = [key for key in keys if expected[key] != found[key]]
    shown = [f"{key[1][:60]}: {found_by} {found[key]:,}, {expected_by} {expected[key]:,}" for key in apart[:SHOWN]]
    return "; ".join([*shown, *([f"and {len(apart) - SHOWN} more names"] if len(apart) > SHOWN else [])])
