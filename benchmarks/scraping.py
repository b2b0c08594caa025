"""Scraping the exporter over HTTP: time and bytes by the number of ranks, next to prometheus_client with as many lines.

Before every scrape all numbers of all ranks have changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from statistics import median
from typing import TYPE_CHECKING

from rich.table import Table

from deepprof.live.service.exporter import DaemonSnapshot, Exporter
from deepprof.live.service.views import BUCKETS_S, DeviceView, LoopView, RankView
from deepprof.live.wire.figures import Account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

RANKS = (1, 100, 1000)
SCRAPES = 15
GOAL_MS = 100
NOW_NS = 1_700_000_000_000_000_000


@dataclass
class Daemon:
    """A daemon with this many ranks, all of which change at every look."""

    ranks: int
    looks: int = 0
    next: DaemonSnapshot = field(default_factory=lambda: DaemonSnapshot(now_unix_ns=NOW_NS))

    def prepare(self) -> None:
        """Make the next snapshot, which a real daemon has at hand."""
        self.looks += 1
        ranks = tuple(make_rank(rank, 1000 + self.looks) for rank in range(self.ranks))
        self.next = DaemonSnapshot(now_unix_ns=NOW_NS, ranks=ranks, ready=True, version="1", started_unix_ns=NOW_NS)

    def look(self) -> DaemonSnapshot:
        return self.next


def make_rank(rank: int, iterations: int) -> RankView:
    counts = [iterations // (1 + bucket) for bucket in range(len(BUCKETS_S) + 1)]
    passed_ns = iterations * 123_456_789 + rank
    device = DeviceView(
        device=0,
        stream=7,
        state="locked",
        **LoopView(0, 1452, 0.93, "repeats", "mined", iterations).shown(),
        iterations=iterations,
        last_events=1600,
        duration_counts=tuple(counts),
        duration_sum_ns=passed_ns,
        interval_ns_total=passed_ns // 10,
        interval_copy_ns_total=passed_ns // 20,
        copy_ns_total=passed_ns // 8,
        copy_exposed_ns_total=passed_ns // 16,
        copied_nbytes={"HtoD": iterations * 4096, "DtoH": iterations * 512},
        compute_ns_total=passed_ns * 7 // 10,
        busy_ns_total=passed_ns * 8 // 10,
        events_total=iterations * 1600,
    )
    view = RankView(job="training/large-model", rank=rank, host=f"node{rank // 8}", connected=True, devices=(device,))
    account = Account(received=device.events_total + 3, accepted=device.events_total, dropped={"late": 3})
    return replace(view, account=account, first_seen_unix_ns=NOW_NS, last_iteration_unix_ns=NOW_NS)


def scrape(address: tuple[str, int]) -> bytes:
    """Return what one scrape reads."""
    connection = HTTPConnection(*address, timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"a scrape was answered with {answer.status}")
    return body


@dataclass(frozen=True)
class Scrape:
    """One scrape: seconds on the wall, and of this process' CPU, which reads it too."""

    wall_s: float
    cpu_s: float


def measure(ranks: int, scrapes: int) -> tuple[list[Scrape], bytes]:
    """Return the cost of every scrape, the first one first, and what the last one read."""
    daemon, taken, body = Daemon(ranks), [], b""
    exporter = Exporter(("127.0.0.1", 0), daemon.look)
    try:
        for _ in range(scrapes):
            daemon.prepare()
            begin, used = time.perf_counter(), time.process_time()
            body = scrape(exporter.address)
            taken.append(Scrape(time.perf_counter() - begin, time.process_time() - used))
    finally:
        exporter.close()
    return taken, body


def measure_client(lines: int) -> float:
    """Return the best seconds in which prometheus_client writes this many lines of a custom collector."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily

    class Lines:
        def collect(self) -> Iterator[CounterMetricFamily]:
            family = CounterMetricFamily("deepprof_lines", "Lines.", labels=("job_id", "rank", "device"))
            for number in range(lines):
                family.add_metric(("training/large-model", str(number), "0"), number + 0.5)
            yield family

    registry = CollectorRegistry()
    registry.register(Lines())  # type: ignore[arg-type]
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        generate_latest(registry)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def run(console: Console, quick: bool = False) -> None:
    """Print a row per number of ranks."""
    table = Table("ranks", "series", "MB", "first ms", "best ms", "median ms", "CPU ms", "prometheus_client ms")
    best = 0.0
    for ranks in RANKS[: 2 if quick else None]:
        (first, *taken), body = measure(ranks, 4 if quick else SCRAPES)
        series = sum(1 for line in body.splitlines() if not line.startswith(b"#"))
        walls, best = [one.wall_s for one in taken], min(one.wall_s for one in taken)
        times = [first.wall_s, best, median(walls), min(one.cpu_s for one in taken), measure_client(series)]
        table.add_row(f"{ranks:,}", f"{series:,}", f"{len(body) / 1e6:.2f}", *(f"{one * 1e3:.1f}" for one in times))
    console.print("Scraping the exporter, all ranks changed", table, sep="\n")
    if not quick:
        verdict = "met" if best < GOAL_MS / 1e3 else "not met"
        console.print(f"Goal: {RANKS[-1]:,} ranks in less than {GOAL_MS} ms: {verdict}.")
