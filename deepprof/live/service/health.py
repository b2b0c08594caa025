"""The daemon's health: whether it takes records and is up to date, and the snapshots for the exporter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepprof.live.service.access import find_metrics_address, find_page_hosts
from deepprof.live.service.clock import DaemonClock
from deepprof.live.service.config import Config
from deepprof.live.service.exporter import DaemonSnapshot, Exporter, ExporterSettings
from deepprof.live.service.exporter.profiles import ContextReader, read_nothing
from deepprof.live.service.ingest import INVALID
from deepprof.live.service.model_flops import read_all
from deepprof.version import read_version

if TYPE_CHECKING:
    from deepprof.live.service.engine import Engine
    from deepprof.live.service.examiner import Examiner

STALE_NS = 60 * 10**9  # if a record waits longer to be mined, the daemon's views are stale


class Health:
    """Makes snapshots of the daemon; safe from any thread."""

    def __init__(self, engine: Engine, examiner: Examiner, clock: DaemonClock) -> None:
        self.engine, self.examiner, self.clock = engine, examiner, clock
        self.started_unix_ns, self.version = clock.unix_ns(), read_version()

    def look(self) -> DaemonSnapshot:
        """Return a snapshot of the daemon as it is now."""
        engine, why = self.engine, self.why_not()
        refusals = engine.refusals.counts()
        return DaemonSnapshot(
            now_unix_ns=self.clock.unix_ns(),
            ranks=tuple(rank.view for rank in engine.roster),
            ready=not why,
            why_not=why,
            version=self.version,
            started_unix_ns=self.started_unix_ns,
            streams=len(engine.streams),
            queue_nbytes=engine.queued_nbytes,
            journal_nbytes=engine.journal.nbytes,
            history_nbytes=engine.history_nbytes,
            refused_messages_total=sum(count for (reason, _), count in refusals.items() if reason == INVALID),
            refusals_total=refusals,
            senders=engine.senders.look(),
            examinations_total=self.examiner.done,
            examinations={job: known.show() for job, known in list(self.examiner.known.items())},
        )

    def why_not(self) -> str:
        """Return why the daemon is not ready, empty when it is."""
        engine = self.engine
        if engine.vitals.problem:
            return engine.vitals.problem
        if engine.draining:
            return "draining: no more records are taken"
        if not engine.ready:
            return "starting: what the journal has is mined again"
        if problem := engine.writer.problem or engine.worker.problem:
            return problem
        waits = engine.worker.oldest_ns(self.clock.monotonic_ns())
        return f"records wait for {waits // 10**9} s to be mined" if waits > STALE_NS else ""


@contextmanager
def exporting(config: Config, health: Health, contexts: ContextReader = read_nothing) -> Iterator[str]:
    """Serve metrics and the page at the configured address, and give HOST:PORT; empty where none is configured.

    `contexts` reads calling contexts, in a thread of the exporter.
    """
    address = find_metrics_address(config)
    if address is None:
        yield ""
        return
    limits = config.exporter
    settings = ExporterSettings(
        vitals=health.engine.vitals,
        hosts=find_page_hosts(config),
        model_flops=read_all(limits.model_flops),
        contexts=contexts,
    )
    exporter = Exporter(
        address,
        health.look,
        ttl_s=limits.job_ttl_ns / 1e9,
        series_cap=limits.series,
        settings=settings,
    )
    try:
        yield f"{exporter.address[0]}:{exporter.address[1]}"
    finally:
        exporter.close()
