"""What a daemon holds, for its operator: jobs and their senders, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from deepprof.render.live import NAME_COLUMNS, find_state, show_since
from deepprof.render.live_table import Line, LiveColumn, cut, draw_table
from deepprof.render.units import ABSENT, format_bytes, format_duration

if TYPE_CHECKING:
    from deepprof.live.wire.figures import JobState, SenderState

UNKNOWN = "(not known)"  # the sender


def draw_jobs_held(jobs: Sequence[JobState], now_unix_ns: int, width: int) -> Iterator[Line]:
    """Yield a table of jobs, none of its lines wider than `width` columns where names allow."""
    columns: tuple[LiveColumn[JobState], ...] = (
        LiveColumn("job", 0, lambda job: cut(job.job, NAME_COLUMNS), left=True),
        LiveColumn("state", 2, lambda job: find_state(job, now_unix_ns), left=True),
        LiveColumn("sender", 1, lambda job: job.sender or UNKNOWN, left=True),
        LiveColumn("connected", 5, lambda job: f"{job.connected:,} of {job.ranks:,}"),
        LiveColumn("iterations", 4, lambda job: f"{job.iterations:,}"),
        LiveColumn("kept", 0, lambda job: format_bytes(job.kept_nbytes or None)),
        LiveColumn("heard", 3, lambda job: show_since(job.last_record_unix_ns, now_unix_ns)),
    )
    yield from draw_table(jobs, columns, width, lambda job: "" if job.connected else "dim")


def draw_senders(senders: Sequence[SenderState], width: int) -> Iterator[Line]:
    """Yield a table of senders: what each has, and its limits."""
    columns: tuple[LiveColumn[SenderState], ...] = (
        LiveColumn("sender", 0, lambda each: each.sender or UNKNOWN, left=True),
        LiveColumn("jobs", 4, lambda each: f"{each.jobs:,}"),
        LiveColumn("ranks", 0, lambda each: of(f"{each.ranks:,}", each.share.ranks and f"{each.share.ranks:,}")),
        LiveColumn("connected", 5, lambda each: f"{each.connected:,}"),
        LiveColumn("records", 3, lambda each: f"{each.records:,}"),
        LiveColumn("per second", 8, lambda each: _at_most(each.share.records_per_s)),
        LiveColumn("held back", 6, lambda each: format_duration(each.paced_ns or None)),
        LiveColumn("waiting", 7, lambda each: format_bytes(each.waiting_nbytes)),
        LiveColumn("kept", 1, _show_kept),
        LiveColumn("refused", 2, lambda each: _show_refused(each.refused), left=True),
        LiveColumn("may write", 9, lambda each: cut(", ".join(each.share.jobs), NAME_COLUMNS), left=True),
    )
    yield from draw_table(senders, columns, width, lambda each: "yellow" if each.refused else "")


def _show_kept(sender: SenderState) -> str:
    """Return how much is kept of a sender, and its limit."""
    most = sender.share.kept_nbytes
    return of(format_bytes(sender.kept_nbytes or None), format_bytes(most) if most else "")


def of(held: str, most: str | int) -> str:
    """Return what is held, with the limit where there is one."""
    return f"{held} of {most}" if most else held


def _at_most(number: int) -> str:
    """Return a limit."""
    return f"{number:,}" if number else ABSENT


def _show_refused(refused: Mapping[str, int]) -> str:
    """Return the most frequent reason for refusals with its count, and how many other reasons there are."""
    if not refused:
        return ABSENT
    reason = max(refused, key=lambda each: refused[each])
    more = len(refused) - 1
    return f"{refused[reason]:,} {reason}{f' +{more}' if more else ''}"
