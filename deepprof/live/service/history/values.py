"""Values that are written to the history and read from it, besides iterations."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from deepprof.live.service.context_windows import ContextWindow
from deepprof.live.service.journal import JournalPlace


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A session's `state` after all frames before the journal `position`, and its results since the last checkpoint.

    `iterations` has the schema HISTORY, oldest first; `contexts` are windows that are over.
    """

    session: int
    position: JournalPlace
    state: bytes
    iterations: pl.DataFrame
    contexts: tuple[ContextWindow, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class WaitingWindow:
    """A window of a session that is not in the history yet; nothing of one that `is_open` was ever there."""

    session: int
    window: ContextWindow
    is_open: bool


@dataclass(frozen=True, slots=True, eq=False)
class ContextAnswer:
    """Calling contexts of a job in a time: `nodes`, callers first, and `sums` (`WINDOW_SUMS`) of their windows.

    `windows` were merged, of at least `step_ns` each; `folded` is how often contexts began that are over the limit, and
    count for those above. `earliest_ns` is when the first window began that is kept, None without any.
    """

    nodes: pl.DataFrame
    sums: pl.DataFrame
    windows: int
    folded: int
    step_ns: int
    earliest_ns: int | None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as it was last saved; `position` is None and `state` empty before its first checkpoint."""

    session: int
    job: str
    rank: int
    collector: str
    hello: bytes
    begun_unix_ns: int
    position: JournalPlace | None
    state: bytes
    closed: bool
    settled: bool


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job that has any session: the numbers of its ranks, of its `open` sessions, and of all its iterations."""

    job: str
    ranks: int
    open: int
    first_seen_unix_ns: int
    latest_unix_ns: int
    iterations: int


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What retention removed: sealed `files`, hot `rows` (without those already replaced), `sessions`, `windows`."""

    files: int
    rows: int
    sessions: int
    windows: int = 0
