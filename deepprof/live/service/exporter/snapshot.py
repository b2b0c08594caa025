"""The state of the daemon at one moment: all that the exporter knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deepprof.live.service.examination import FindingSummary
    from deepprof.live.service.senders import SenderView
    from deepprof.live.service.views import RankView


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExamination:
    """The latest examination of a job: what the rules found, and the documents of the page by key, JSON each."""

    findings: Sequence[FindingSummary] = ()
    documents: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


NEVER_EXAMINED = JobExamination()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSnapshot:
    """A snapshot of the daemon. Times are Unix times of its clock in ns; sizes are bytes; `_total` only ever grows.

    `ranks` are all ranks that the daemon knows, connected or not; the exporter alone decides which are shown.
    """

    now_unix_ns: int
    ranks: tuple[RankView, ...] = ()
    ready: bool = False  # takes records, and its views are fresh
    why_not: str = ""  # why it is not ready, as a text for people
    version: str = ""
    started_unix_ns: int = 0
    streams: int = 0  # open now
    queue_nbytes: int = 0  # taken and not yet mined, of all ranks
    journal_nbytes: int = 0
    history_nbytes: int = 0  # database and sealed files
    refused_messages_total: int = 0  # broke a limit or could not be read
    refusals_total: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    """Streams, messages and calls that were refused, by reason and the name of their sender ("": not known)."""
    senders: tuple[SenderView, ...] = ()
    examinations_total: int = 0  # times that the rules examined a job's latest records
    examinations: Mapping[str, JobExamination] = field(default_factory=lambda: MappingProxyType({}))  # by job
