"""Calling contexts as a pprof profile over HTTP, for Pyroscope and Parca to scrape, and for `go tool pprof`.

A profile is of the latest whole minutes that are known: as many as the scraper states that it waits between two scrapes
(`seconds`, one minute at least). Nothing is remembered of a scraper: one that asks once a minute has each minute once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from time import monotonic
from types import MappingProxyType
from typing import Protocol

from deepprof.collectors.errors import UsageError
from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.metrics.contexts.history import ContextsOfRank
from deepprof.plurals import counted
from deepprof.render.flame import SENT_MEASURES, FlameMeasure
from deepprof.render.pprof import PprofPeriod, PprofProfile

MINUTE_NS = 60 * 10**9
LAG_NS = 2 * MINUTE_NS  # until a minute is known: it is over, and what comes late of it has come
MOST_SECONDS = 3600
MOST_RANKS = 256  # of a profile, the first ones
MOST_S = 10.0  # of reading: the page waits meanwhile, and a scraper no longer
MOST_SAMPLES = 50_000  # of a profile: about 5 MB before it is compressed
PROFILE_MEASURES: Mapping[str, FlameMeasure] = MappingProxyType(
    {
        "host": SENT_MEASURES["host"],
        "device": SENT_MEASURES["device"],
        "count": FlameMeasure("times that it began", "count", ("count",), "{:,.0f}".format),
    }
)


class ContextReader(Protocol):
    """Reads what a job has sent of its contexts."""

    def __call__(self, job: str, rank: int, start_ns: int, end_ns: int, /) -> Sequence[ContextsOfRank]:
        """Return that of a rank in the windows that begin in [`start_ns`, `end_ns`); nothing where there is nothing."""
        ...


def read_nothing(_: str, __: int, ___: int, ____: int, /) -> Sequence[ContextsOfRank]:
    """Return that nothing was sent."""
    return ()


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """Whose profile is requested (None: of all that send contexts), and of how many minutes."""

    job: str | None = None
    rank: int | None = None
    minutes: int = 1

    @classmethod
    def read(cls, query: Mapping[str, str]) -> ProfileRequest:
        """Return the request of an address; raises `UsageError` for one that cannot be meant."""
        unknown = query.keys() - {"job", "rank", "seconds"}
        if unknown:
            raise UsageError(f"{min(unknown)[:40]!r} is none of job, rank and seconds")
        rank, seconds = (_read_number(query, name) for name in ("rank", "seconds"))
        if seconds is not None and not 1 <= seconds <= MOST_SECONDS:
            raise UsageError(f"seconds: {seconds} is not between 1 and {MOST_SECONDS}")
        return cls(query.get("job"), rank, -(-(seconds or 1) // 60))


def _read_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise UsageError(f"{name}: {text[:40]!r} is no whole number")
    return int(text)


def write_profile(request: ProfileRequest, snapshot: DaemonSnapshot, read: ContextReader) -> bytes | None:
    """Return the profile that is requested; None where no one that is meant sends contexts.

    Ranks whose turn does not come in time are left out, which a comment states.
    """
    wanted = [
        (view.job, view.rank)
        for view in snapshot.ranks
        if view.contexts is not None and request.job in {None, view.job} and request.rank in {None, view.rank}
    ]
    if not wanted:
        return None
    end = (snapshot.now_unix_ns - LAG_NS) // MINUTE_NS * MINUTE_NS
    start = end - request.minutes * MINUTE_NS
    profile, shown, merged = PprofProfile(PROFILE_MEASURES), wanted[:MOST_RANKS], 0
    left_out, until_s = len(wanted) - len(shown), monotonic() + MOST_S
    for job, rank in shown:
        if monotonic() >= until_s:
            left_out += 1
            continue
        labels = {"job_id": job, "rank": str(rank)}
        for found in read(job, rank, start, end):
            merged += profile.add(found.table, labels=labels, most=MOST_SAMPLES // len(shown))
    file = BytesIO()
    comments = _list_comments(left_out, merged)
    profile.write(file, PprofPeriod(start, end - start, comments))
    return file.getvalue()


def _list_comments(ranks: int, merged: int) -> list[str]:
    left_out = [f"{counted(ranks, 'more rank')} left out"] if ranks else []
    return left_out + ([f"{counted(merged, 'small context')} put together"] if merged else [])
