"""What a daemon sees at one moment: jobs and their ranks, sent to pages that are open."""

from __future__ import annotations

from typing import Literal

import msgspec

MOST_LATEST = 60  # iterations of a rank
MOST_RANKS = 256  # of all jobs: a page of more shows nothing to people, and is sent every second
MOST_FINDINGS = 256


class LiveRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank; times are of its latest iterations, null before there are any."""

    rank: int
    state: str
    connected: bool
    iterations: int
    median_ns: int | None
    latest_ns: list[int]  # of the latest iterations, the last one last; at most `MOST_LATEST`
    interval_ns: int | None
    overlap_ratio: float | None
    dropped: int
    stages: list[tuple[str, int]]


class LiveFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on a running job."""

    job: str
    rank: int | None
    rule: str
    severity: Literal["info", "warning", "critical"]
    title: str
    advice: str
    headroom_ns: int | None


class LiveJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job; `examined`: there are documents of it, at `jobs/NAME`."""

    name: str
    title: str
    ranks: list[LiveRank]
    examined: bool


class LiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs; `left_out` ranks and `left_out_findings` are not in it."""

    schema: Literal["deepprof.view.live/1"] = "deepprof.view.live/1"
    now_unix_ns: int
    ready: bool
    why_not: str
    jobs: list[LiveJob]
    findings: list[LiveFinding]
    left_out: int = 0
    left_out_findings: int = 0
