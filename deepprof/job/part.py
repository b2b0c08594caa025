"""A range of a job's time: the same moments on every rank, counted from where the job's recording begins."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.errors import UsageError
from deepprof.collectors.store.rank import StoredRank
from deepprof.collectors.time_range import OUT_OF_RANGE, cut
from deepprof.collectors.times import EARLIEST_UNIX_NS, TIME_LIMIT_NS
from deepprof.collectors.trace import Trace
from deepprof.plurals import counted

UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3))
Between = tuple[int | None, int | None]  # ns from the first device event of the job; None: open


class RankBegin(Struct, frozen=True):
    """When a rank's first device event starts on its own clock, and the unix time of that clock's zero, where known."""

    start_ns: int | None
    epoch_ns: int | None


def check_between(between: Between) -> None:
    """Raise `UsageError` for a range that holds no moment."""
    start, end = between
    if (start or 0) < 0 or (end is not None and end <= (start or 0)):
        said = f"from {_format_time(start or 0)} to {'the end' if end is None else _format_time(end)}"
        raise UsageError(f"a range of time {said} holds nothing; let it start at 0 or later, and end after it starts")


def _format_time(time_ns: int) -> str:
    """Return a time in the largest unit that it has at least one of."""
    unit, size = next(((unit, size) for unit, size in UNITS if abs(time_ns) >= size), ("ns", 1))
    return f"{time_ns / size:.12g} {unit}"


def read_parts(
    ranks: Sequence[Trace | StoredRank], between: Between, *, details: bool = False, shapes: bool = True
) -> list[Trace]:
    """Return the part of every rank that overlaps the range; of a stored rank only that part is read.

    The range counts from the first device event of the job where all clocks can be compared, else from every rank's
    own. `details` and `shapes` are those of stored ranks. Raises `UsageError` when no device event is in the range.
    """
    zeros = find_zeros([find_begin(rank) for rank in ranks])
    parts = [
        read_part(rank, zero, between, details=details, shapes=shapes) for rank, zero in zip(ranks, zeros, strict=True)
    ]
    check_parts([part.device_events.height for part in parts])
    return parts


def check_parts(events: Sequence[int]) -> None:
    """Raise `UsageError` when no device event is in the range; `events` are their numbers on every rank."""
    if not any(events):
        raise UsageError("no device event lies in the range of time; it counts from the first one of the job")


def read_part(
    rank: Trace | StoredRank, zero: int, between: Between, *, details: bool = False, shapes: bool = True
) -> Trace:
    """Return the part of one rank that overlaps the range counted from `zero`, with a note on what is left out."""
    start, end = (None if moment is None else _bound(moment + zero) for moment in between)
    part = (
        rank.read(start, end, details=details, shapes=shapes) if isinstance(rank, StoredRank) else cut(rank, start, end)
    )
    left = part.accounting.dropped.get(OUT_OF_RANGE, 0)
    note = f"only a part of the time is looked at: {counted(left, 'record')} outside of it"
    return replace(part, notes=(*part.notes, note)) if left else part


def _bound(time_ns: int) -> int:
    """Return `time_ns`, limited to the times that a trace can hold."""
    return max(-TIME_LIMIT_NS, min(time_ns, TIME_LIMIT_NS))


def find_zeros(begins: Sequence[RankBegin]) -> list[int]:
    """Return the range's zero on every rank's own clock; a rank without a record fits any clock."""
    starts, epochs = [begin.start_ns for begin in begins], [begin.epoch_ns for begin in begins]
    if None in epochs:
        return [start or 0 for start in starts]
    known = [epoch or 0 for epoch in epochs]
    absolute = [start + epoch for start, epoch in zip(starts, known, strict=True) if start is not None]
    return [min(absolute, default=0) - epoch for epoch in known]


def find_begin(rank: Trace | StoredRank) -> RankBegin:
    """Return when the first device event of a rank starts."""
    return RankBegin(_find_start(rank), _find_epoch(rank))


def _find_start(rank: Trace | StoredRank) -> int | None:
    """Return when the first device event of a rank starts, on its own clock."""
    if isinstance(rank, StoredRank):
        return rank.manifest.start_ns
    start = rank.device_events["start_ns"].min()
    return start if isinstance(start, int) else None


def _find_epoch(rank: Trace | StoredRank) -> int | None:
    """Return the unix time of the zero of a rank's clock, None where it is not recorded or cannot be true."""
    said = rank.manifest if isinstance(rank, StoredRank) else rank
    if said.clock == "unix" or not said.accounting.kept:
        return 0
    return said.epoch_ns if said.epoch_ns is not None and EARLIEST_UNIX_NS < said.epoch_ns < TIME_LIMIT_NS else None
