"""The conservation of blame: what an analysis must satisfy, whatever it is of."""

from __future__ import annotations

from statistics import median

import pytest

from deepprof.analysis import Analysis
from deepprof.diagnosis.coverage import is_about, part_limits
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.loop import Loop

__all__ = ["check_books"]

ROUNDING_NS = 50
MOST_PER_USUAL = 1.2  # a headroom is per iteration, parts are per usual one: at most one in ten is a stall


def check_books(analysis: Analysis) -> None:
    """Fail where a nanosecond is in two findings, or a large part of an iteration is in none and nothing states why."""
    for loop in analysis.loops:
        means = mean_parts(loop)
        own = [f for f in analysis.findings if f.stream is not None and is_about(f, loop)]
        claimed = {part: sum(f.parts.get(part, 0) for f in own) for part in means}
        assert all(claimed[part] <= means[part] + ROUNDING_NS for part in means), claimed
        told = {part for f in analysis.findings if is_about(f, loop) for part in f.parts}
        excused = {u.part for u in analysis.unnamed if (u.rank, u.device, u.stream) == place(loop)}
        whole = max(1.0, sum(means.values()))
        large = {part for part, limit in part_limits().items() if means[part] >= 1.0001 * limit * whole}
        assert large <= told | excused
        assert not excused & told
    for finding in analysis.findings:
        check_headroom(finding)


def check_headroom(finding: Finding) -> None:
    """Fail where a finding's headroom is not the sum of what it claims; stalls are in no part of usual iterations."""
    if finding.parts and finding.rule == "slow-iterations":
        assert sum(finding.parts.values()) <= (finding.headroom_ns_per_iteration or 0) * MOST_PER_USUAL + ROUNDING_NS
    elif finding.parts and finding.stream is not None:
        assert finding.headroom_ns_per_iteration == pytest.approx(sum(finding.parts.values()), abs=ROUNDING_NS)


def place(loop: Loop) -> tuple[int, int, int]:
    """Return the main stream of a loop."""
    return loop.rank, loop.device, loop.stream


def mean_parts(loop: Loop) -> dict[str, float]:
    """Return the mean of every part over the usual iterations, one by one."""
    rows = [row for row in loop.table.iter_rows(named=True) if row["complete"] and not row["warmup"]]
    rows = [row for row in rows if row["iteration_ns"] is not None]
    stalls = [row for row in rows if row["iteration_ns"] >= 3 * median(each["iteration_ns"] for each in rows)]
    if len(rows) >= 8 and 10 * len(stalls) <= len(rows):
        rows = [row for row in rows if row not in stalls]
    return {part: sum(row[part] or 0 for row in rows) / max(1, len(rows)) for part in (*part_limits(), "compute_ns")}
