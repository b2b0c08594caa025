"""What a recording lacks, and which results it prevents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.costs import held_back_in
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.plurals import counted, verb

ENOUGH_ITERATIONS = 3  # iterations: a mean of fewer is not reliable
LOST = 0.01  # of all records: single broken ones change nothing
MUCH_LOST = 0.05
UNLINKED = 0.05  # of the kernels; if most are unlinked, the recorder does not link, and rules account for that
NAMED, UNKNOWN, DECISIVE = (
    0.15,
    0.5,
    0.3,
)  # of the iteration (a recognized cause as large would be reported), of its idle time, of the iteration
# Reasons in `Accounting.dropped` that mean that recorded data is missing.
BROKEN = ("invalid-time", "invalid-place", "invalid", "malformed", "undecodable", "unmatched")
ENDED = ("truncated", "without-times")  # one is enough: the recorder did not get to the end
# Notes in which the recorder itself reports what it lost.
SAID = r"(?i)not all CUDA events|breaks off|ran out of buffer|are lost\b|without their kernels|(?:was|were) dropped"

MISSING = re.compile(r"([\d,]+) of ([\d,]+) dispatches are not in the file")


class _MissingEvidence(Struct, frozen=True):
    """Missing evidence: `what` is missing, the `value` that shows it, and what it `prevents`.

    `decisive`: the results depend on it.
    """

    key: str
    value: int | float
    what: str
    prevents: str
    decisive: bool = False


def find_lacks(loop: Loop, trace: Trace) -> list[_MissingEvidence]:
    """Return what the recording of a loop lacks, the decisive first."""
    found = [
        *_iterations_lacking(loop),
        *_records_lost(trace),
        *_records_missing(trace),
        *_kernels_unlinked(loop, trace),
        *_causes_unknown(loop, trace),
    ]
    return sorted(found, key=lambda lack: not lack.decisive)


def _iterations_lacking(loop: Loop) -> Iterator[_MissingEvidence]:
    """Yield an entry if too few iterations are complete; not if more were recorded than are examined."""
    if (loop.whole_iterations or 0) > loop.iterations.height:
        return
    usual, complete = loop.usual.height, int(loop.iterations["complete"].sum())
    cut = loop.iterations.height - complete
    if usual < ENOUGH_ITERATIONS:
        many = f"only {usual} iteration{'' if usual == 1 else 's'}" if usual else "no iteration"
        yield _MissingEvidence(
            "usual_iterations",
            usual,
            f"{many} after warm-up {'is' if usual < 2 else 'are'} complete and followed by another",
            "confidence intervals, slow iterations and drift",
            decisive=usual < 2,
        )
    if cut > complete:
        yield _MissingEvidence(
            "cut_iterations",
            cut,
            f"{cut} of {counted(loop.iterations.height, 'iteration')} {verb(cut)} cut off",
            "their figures",
        )


def _records_lost(trace: Trace) -> Iterator[_MissingEvidence]:
    """Yield an entry if records were lost, as the accounting or the recorder's notes show."""
    dropped = trace.accounting.dropped
    ended, broken = (sum(dropped.get(reason, 0) for reason in reasons) for reasons in (ENDED, BROKEN))
    share = (ended + broken) / max(1, trace.accounting.read)
    if ended or share >= LOST:
        yield _MissingEvidence(
            "lost_records",
            ended + broken,
            f"{counted(ended + broken, 'record')} ({100 * share:.1f} %) {verb(ended + broken)} broken or cut off",
            "complete sums",
            decisive=share >= MUCH_LOST,
        )
    said = pl.Series(list(trace.notes), dtype=pl.String)
    said = said.filter(said.str.contains(SAID))
    if len(said):
        yield _MissingEvidence(
            "notes", len(said), f"the recording says: {said[0].rstrip('.')}", "certainty that all work was recorded"
        )


def _records_missing(trace: Trace) -> Iterator[_MissingEvidence]:
    """Yield an entry if the file shows by gaps in the numbers of its records how many are not in it."""
    for missing, whole in find_missing(trace.notes):
        yield _MissingEvidence(
            "missing_dispatches",
            missing,
            f"{missing:,} of {whole:,} dispatches are not in the file",
            "telling idle time from work that is missing",
            decisive=missing >= MUCH_LOST * whole,
        )


def find_missing(notes: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield from the importers' notes how many dispatches are not in a file, and of how many."""
    for found in filter(None, (MISSING.match(note) for note in notes)):
        missing, whole = (int(number.replace(",", "")) for number in found.groups())
        yield missing, whole


def _kernels_unlinked(loop: Loop, trace: Trace) -> Iterator[_MissingEvidence]:
    """Yield an entry if some of the kernels have no launch record while most have one."""
    rows = loop.usual
    if not rows.height or is_stand_in(trace):
        return
    since, until = int(rows["start_ns"][0]), int(rows["start_ns"][-1]) + int(rows["iteration_ns"][-1])
    kernels = trace.device_events.filter(
        (pl.col("device") == loop.device) & pl.col("activity").is_in(["kernel", "graph"]),
        pl.col("start_ns").is_between(since, until, closed="left"),
    )
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("correlation").is_not_null())
    linked = kernels.join(calls.select("correlation"), on="correlation", how="semi").height
    unlinked = kernels.height - linked
    if linked > unlinked >= UNLINKED * kernels.height > 0:
        yield _MissingEvidence(
            "unlinked_kernels",
            unlinked,
            f"{unlinked:,} of {counted(kernels.height, 'kernel')} {verb(unlinked, 'has', 'have')} no launch record",
            "the cause of idle time in front of them",
        )


def _causes_unknown(loop: Loop, trace: Trace) -> Iterator[_MissingEvidence]:
    """Yield an entry if most of the idle time has no cause although the host was recorded."""
    rows = loop.usual
    whole = float(rows["iteration_ns"].sum() or 0)
    if not whole or not trace.host_events.height or loop.parts.is_empty():
        return
    idle, unknown = (
        float(rows.select(pl.sum_horizontal(p).sum()).item() or 0) for p in (IDLE_PARTS, ["idle_unknown_ns"])
    )
    waits = held_back_in(loop)  # which are seen, though not what they are for
    unknown -= min(unknown, float((waits.ends - waits.starts).sum()))
    if unknown >= max(NAMED * whole, UNKNOWN * idle):
        yield _MissingEvidence(
            "unknown_idle_ratio",
            round(unknown / whole, 4),
            f"{100 * unknown / whole:.0f} % of the iteration time is idle without a cause in the trace",
            "the reason why the device waits",
            decisive=unknown >= DECISIVE * whole,
        )
