"""Made-up ranks whose numbers grow with time, for the exporter's tests, the live Prometheus and the benchmark."""

from __future__ import annotations

from dataclasses import replace

from deepprof.live.service.exporter import DaemonSnapshot
from deepprof.live.service.views import BUCKETS_S, DeviceView, LoopView, RankView
from deepprof.live.wire.figures import Account

START_NS = 1_700_000_000_000_000_000
S = 1_000_000_000


def make_device(iterations: int, *, device: int = 0, duration_ns: int = 120_000_000, **other: object) -> DeviceView:
    """Return a device after this many iterations of one duration, a tenth of it an interval half full of copies."""
    bucket = next(i for i, bound in enumerate((*BUCKETS_S, float("inf"))) if duration_ns / 1e9 <= bound)
    counts = [0] * (len(BUCKETS_S) + 1)
    counts[bucket] = iterations
    passed_ns = iterations * duration_ns
    loop = LoopView(0, 1452, 0.93, "repeats", "mined", iterations) if iterations else None
    view = DeviceView(
        device=device,
        stream=7,
        state="locked" if iterations else "learning",
        **(loop.shown() if loop else {}),
        loops=(loop,) if loop else (),
        iterations=iterations,
        last_events=1600 if iterations else 0,
        duration_counts=tuple(counts),
        duration_sum_ns=passed_ns,
        interval_ns_total=passed_ns // 10,
        interval_copy_ns_total=passed_ns // 20,
        copy_ns_total=passed_ns // 8,
        copy_exposed_ns_total=passed_ns // 16,
        copied_nbytes={"HtoD": iterations * 4096, "DtoH": iterations * 512} if iterations else {},
        compute_ns_total=passed_ns * 7 // 10,
        busy_ns_total=passed_ns * 8 // 10,
        events_total=iterations * 1600,
    )
    return replace(view, **other)  # type: ignore[arg-type]


def make_rank(job: str, rank: int, now_ns: int, *devices: DeviceView, **other: object) -> RankView:
    """Return a connected rank that has just sent something."""
    events = sum(device.events_total for device in devices)
    view = RankView(
        job=job,
        rank=rank,
        world_size=2,
        host=f"node{rank // 8}",
        collector="c1",
        connected=True,
        first_seen_unix_ns=START_NS,
        last_record_unix_ns=now_ns,
        last_iteration_unix_ns=now_ns if any(device.iterations for device in devices) else 0,
        account=Account(received=events, accepted=events),
        lag_ns=3_000_000,
        queued_nbytes=1024,
        devices=devices,
    )
    return replace(view, **other)  # type: ignore[arg-type]


def make_snapshot(*ranks: RankView, now_ns: int = START_NS, **other: object) -> DaemonSnapshot:
    """Return a ready daemon with these ranks."""
    snapshot = DaemonSnapshot(
        now_unix_ns=now_ns,
        ranks=ranks,
        ready=True,
        version="1.2.3",
        started_unix_ns=START_NS,
        streams=len(ranks),
        queue_nbytes=2048,
        journal_nbytes=1 << 20,
        history_nbytes=1 << 16,
        examinations_total=3,
    )
    return replace(snapshot, **other)  # type: ignore[arg-type]
