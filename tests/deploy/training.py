"""Two made-up jobs behind a real exporter, whose numbers grow with the clock and that a test can trouble."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from deepprof.live.service.exporter import DaemonSnapshot, Exporter
from deepprof.live.service.exporter.exporter import ExporterSettings
from deepprof.live.service.model_flops import ModelFlops
from deepprof.live.service.views import RankView
from deepprof.live.wire.figures import CollectorStatus, ContextFigures, LeadingFigures, SenderState, Share, StageFigures
from tests.deepprof.live.service.exporter.jobs import S, make_device, make_rank, make_snapshot

__all__ = ["Training", "exported"]

AGO_NS = 1800 * S
DURATION_NS = 10_000_000
SETTINGS = ExporterSettings(model_flops=[ModelFlops("*", ideal_ns=1e6)])
STAGES = (
    StageFigures("forward", 2_000_000, 1_000_000, 3_000_000, 0.9),
    StageFigures("backward", 5_000_000, 500_000, 5_000_000, 0.8),
)


@dataclass
class Training:
    """Job `train` of two ranks and `healthy` of one; with `trouble`, rank 1 of `train` has all that alerts show.

    Counters only ever grow: what trouble added stays when it ends.
    """

    trouble: bool = False
    iterations: float = 1000.0
    per_s: float = 100.0
    troubled: float = 0.0  # iterations during trouble
    growth: int = 0
    events: int = 0  # of rank 1, which has none during trouble
    looked_s: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> DaemonSnapshot:
        """Return the jobs as they are now."""
        with self.lock:
            self.pass_time()
            ranks = (self.rank("train", 0), self.disturbed(self.rank("train", 1)), self.rank("healthy", 0))
        why = "a test asked for it" if self.trouble else ""
        sender = SenderState("team-a", 2, 3, 3, sum(rank.account.received for rank in ranks), share=Share(ranks=64))
        seen = {"senders": (sender,), "refusals_total": {("share.ranks", "team-a"): 2}}
        return make_snapshot(*ranks, now_ns=time.time_ns(), ready=not why, why_not=why, **seen)

    def pass_time(self) -> None:
        """Iterate since the last look."""
        now_s = time.monotonic()
        passed = (now_s - self.looked_s) * self.per_s
        self.looked_s, self.iterations = now_s, self.iterations + passed
        if self.trouble:
            self.troubled, self.growth = self.troubled + passed, self.growth + 1
        else:
            self.events += int(1600 * passed)

    def rank(self, job: str, rank: int) -> RankView:
        """Return a rank with all that can be shown."""
        now_ns, number = time.time_ns(), int(self.iterations)
        extra = {"resets": 1, "foreign_kernels": number // 100, "median_iteration_ns": DURATION_NS}
        device = make_device(number, duration_ns=DURATION_NS, **extra)
        made = make_rank(job, rank, now_ns, device, first_seen_unix_ns=now_ns - AGO_NS)
        contexts = LeadingFigures((ContextFigures("step train.py:7", 7 * number, 5 * number),))
        made = replace(made, status=CollectorStatus(overhead_ratio=0.01), stages=STAGES, contexts=contexts)
        if job == "healthy" or rank == 1:
            return made
        account = replace(made.account, received=made.account.received + 3, dropped={"late": 3})
        return replace(made, account=account, findings={"input-bound": "info"})

    def disturbed(self, rank: RankView) -> RankView:
        """Return the rank with its trouble, past and present."""
        (device,), lost = rank.devices, int(self.troubled)
        added_ns = int(3 * DURATION_NS * self.troubled)  # iterations need four times as long
        device = replace(
            device,
            duration_sum_ns=device.duration_sum_ns + added_ns,
            compute_ns_total=device.compute_ns_total + added_ns,
            growth_total=self.growth,
            events_total=self.events,
        )
        rank = replace(rank, devices=(device,), account=replace(rank.account, lost=lost * 1600))
        if not self.trouble:
            return rank
        long_ago_ns = time.time_ns() - AGO_NS
        findings = {"copy-bound": "warning"}
        status = CollectorStatus(level="duty", reason="overhead", duty_ratio=0.25, level_changes=1)
        rank = replace(rank, status=status, findings=findings)
        return replace(rank, last_record_unix_ns=long_ago_ns, last_iteration_unix_ns=long_ago_ns)


@contextmanager
def exported(training: Training) -> Iterator[tuple[Exporter, str]]:
    """Serve the jobs; give the exporter and its HOST:PORT."""
    exporter = Exporter(("127.0.0.1", 0), training.look, settings=SETTINGS)
    try:
        yield exporter, f"{exporter.address[0]}:{exporter.address[1]}"
    finally:
        exporter.close()
