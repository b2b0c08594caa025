"""The state of the daemon at one moment: all that the exporter has of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from deepprof.live.wire.declarations import counter, figure, gauge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deepprof.live.service.examination import FindingSummary
    from deepprof.live.service.views import RankView
    from deepprof.live.wire.figures import SenderState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExamination:
    """The latest examination of a job: what the rules found, and the documents of the page by key, JSON each."""

    findings: Sequence[FindingSummary] = ()
    documents: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


NEVER_EXAMINED = JobExamination()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSnapshot:
    """A snapshot of the daemon. Times are Unix times of its clock in ns; sizes are bytes; `_total` only ever grows.

    `ranks` are all ranks that the daemon has, connected or not; the exporter alone decides which are shown.
    """

    now_unix_ns: int
    ranks: tuple[RankView, ...] = ()
    version: str = figure("", gauge("build_info", "Always 1; `version` is DeepProf's.", labels=("version",)))
    ready: bool = figure(False, gauge("ready", "1 while the daemon takes records and what it shows is fresh."))
    why_not: str = ""  # why it is not ready, as a text for people
    started_unix_ns: int = figure(
        0, gauge("start_timestamp_seconds", "When the daemon started.", needs="started_unix_ns")
    )
    streams: int = figure(0, gauge("streams", "Streams of collectors that are open."))
    queue_nbytes: int = figure(0, gauge("pipeline_queue_bytes", "Records of all ranks taken and not yet analysed."))
    journal_nbytes: int = figure(0, gauge("journal_bytes", "Journal on disk."))
    history_nbytes: int = figure(0, gauge("history_bytes", "Iteration history on disk."))
    refused_messages_total: int = figure(
        0, counter("refused_messages_total", "Messages that broke a limit or could not be read.")
    )
    refusals_total: Mapping[tuple[str, str], int] = figure(  # by reason and sender
        lambda: MappingProxyType({}),
        counter(
            "refusals_total",
            "Streams, messages and calls that were refused, by reason and the name of the token; none: not known.",
            labels=("reason", "token"),
            samples=lambda snapshot: [*snapshot.refusals_total.items()],
        ),
    )
    senders: tuple[SenderState, ...] = ()
    examinations_total: int = figure(
        0, counter("examinations_total", "Times that the rules looked at a job's latest records.")
    )
    examinations: Mapping[str, JobExamination] = field(default_factory=lambda: MappingProxyType({}))  # by job
