"""Values that are written to the history and read from it, besides iterations."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from deepprof.live.service.journal import JournalPlace


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A session's `state` after all frames before the journal `position`, and its iterations since the last checkpoint.

    `iterations` has the schema HISTORY, oldest first.
    """

    session: int
    position: JournalPlace
    state: bytes
    iterations: pl.DataFrame


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
    """What retention removed: sealed `files` and hot `rows` (without those already replaced), and `sessions`."""

    files: int
    rows: int
    sessions: int
