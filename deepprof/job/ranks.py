"""Numbers for the ranks of one job: from the trace, else from its file's name, else the next free one.

Where all traces state the same rank, as in a job whose processes did not know theirs, the names of the files decide, if
each names its own rank.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from deepprof.collectors.trace import Trace

WORDS = re.compile(r"(?<![a-z])(?:rank|worker)[-_=.]?(\d{1,9})(?!\d)", re.IGNORECASE)


class NumberedTrace(Struct, frozen=True):
    """The number of one trace in its job, and a sentence on its source if the trace does not state it itself."""

    rank: int
    note: str | None = None


def rank_in_name(path: str) -> int | None:
    """Return the rank that the last part of `path` names, else the part before it: `rank-3`, `worker0`.

    >>> rank_in_name("run/sampled_rank-1.json.gz"), rank_in_name("rank7/trace.json"), rank_in_name("frank3.json")
    (1, 7, None)
    """
    parts = PurePath(path).parts[-2:][::-1]
    return next((int(found[1]) for part in parts if (found := WORDS.search(part))), None)


def assign_ranks(traces: Sequence[tuple[int | None, str]]) -> list[NumberedTrace]:
    """Return the number of every trace, given the rank that it states (or None) and its path.

    Names of files are used only where they give no two traces of the job the same number.
    """
    if named := _names_decide(traces):
        note = (
            f"each of {len(traces)} traces names rank {traces[0][0]}; their ranks are those in the names of their files"
        )
        return [NumberedTrace(rank, note if rank == min(named) else None) for rank in named]
    ranks = _believed(traces)
    taken = set(ranks)
    free = (rank for rank in count() if rank not in taken)
    seen: set[int] = set()
    numbered = []
    for rank, (stated, path) in zip(ranks, traces, strict=True):
        if rank is None or rank in seen:
            number = next(free)
            found = NumberedTrace(number, None if len(traces) == 1 else _explain(stated, path, number))
        else:
            found = NumberedTrace(rank)
        seen.add(found.rank)
        numbered.append(found)
    return numbered


def _names_decide(traces: Sequence[tuple[int | None, str]]) -> list[int]:
    """Return the ranks in the names of several files that all state the same rank; none where names do not decide."""
    stated = {rank for rank, _ in traces}
    if len(traces) < 2 or len(stated) > 1 or None in stated:
        return []
    named = [rank for _, path in traces if (rank := rank_in_name(path)) is not None]
    return named if len(set(named)) == len(traces) else []


def _believed(traces: Sequence[tuple[int | None, str]]) -> list[int | None]:
    """Return the rank that each trace states, else the one in its file's name when those are distinct in the job."""
    stated = [rank for rank, _ in traces]
    named = [rank_in_name(path) if rank is None and len(traces) > 1 else None for rank, path in traces]
    counts = Counter(rank for rank in (*stated, *named) if rank is not None)
    if any(counts[rank] > 1 for rank in named if rank is not None):
        return stated
    return [rank if rank is not None else name for rank, name in zip(stated, named, strict=True)]


def _explain(rank: int | None, path: str, number: int) -> str:
    """Return a sentence on why a trace does not keep the rank that it states."""
    reason = "names no rank" if rank is None else f"names rank {rank}, which another file has"
    return f"{PurePath(path).name} {reason}; it is counted as rank {number}"


def number_ranks(traces: Iterable[Trace]) -> list[Trace]:
    """Return `traces` ordered by rank, each rank once; a number that no trace and no file name gives has a note."""
    traces = list(traces)
    numbers = assign_ranks([(trace.rank, trace.path) for trace in traces])
    numbered = [put_number(trace, number) for trace, number in zip(traces, numbers, strict=True)]
    return sorted(numbered, key=lambda trace: trace.rank or 0)


def put_number(trace: Trace, number: NumberedTrace) -> Trace:
    """Return `trace` as the rank `number`."""
    notes = (number.note,) if number.note else ()
    return replace(trace, rank=number.rank, notes=(*trace.notes, *notes))
