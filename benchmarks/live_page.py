"""The daemon's page next to ranks that change all the time: what the page and its server take of a core."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.page_timing import show
from benchmarks.scraping import make_rank
from deepprof.live.service.exporter import DaemonSnapshot, Exporter

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from deepprof.live.service.views import RankView

RANKS, CHANGES_PER_S = 64, 50
WATCHED_S = 10.0
LATEST = 60  # iterations of which a rank shows the time
THREADS = "deepprof-"


@dataclass
class ChangingRanks:
    """A daemon's ranks, of which one after the other has a new iteration, `CHANGES_PER_S` in a second."""

    started: float = field(default_factory=time.monotonic)
    changes: int = 0
    views: list[RankView] = field(default_factory=lambda: [_make_view(rank, 0) for rank in range(RANKS)])

    def look(self) -> DaemonSnapshot:
        """Return what they are now; what has not changed is the same object."""
        wanted = int((time.monotonic() - self.started) * CHANGES_PER_S)
        for change in range(max(self.changes, wanted - RANKS), wanted):
            self.views[change % RANKS] = _make_view(change % RANKS, change // RANKS + 1)
        self.changes = wanted
        return DaemonSnapshot(now_unix_ns=time.time_ns(), ranks=tuple(self.views), ready=True, version="1")


@dataclass(frozen=True)
class LiveCost:
    """Shares of a core: of the process that draws the page, of all of the browser, and of the server's threads."""

    page_ratio: float
    browser_ratio: float
    server_ratio: float
    drawings: int


def watch_live(browser: Browser, watched_s: float = WATCHED_S) -> LiveCost:
    """Return what the daemon's page takes while it is open for this many seconds."""
    exporter = Exporter(("127.0.0.1", 0), ChangingRanks().look)
    session = browser.new_browser_cdp_session()
    try:
        address = "http://{}:{}/".format(*exporter.address)
        with show(browser, address, "main[data-view=live] tbody tr") as page:
            page.evaluate(_COUNT_DRAWINGS)
            drawing, whole, server, begin = *_browser_cpu(session), _server_cpu_s(), time.monotonic()
            page.wait_for_timeout(watched_s * 1e3)
            passed = time.monotonic() - begin
            drawn, all_of_it = _browser_cpu(session)
            served, drawings = _server_cpu_s() - server, page.evaluate("drawings")
        return LiveCost((drawn - drawing) / passed, (all_of_it - whole) / passed, served / passed, drawings)
    finally:
        session.detach()
        exporter.close()


_COUNT_DRAWINGS = """() => {
  window.drawings = 0;
  new MutationObserver(() => window.drawings++)
    .observe(document.querySelector("main"), { childList: true, subtree: true, characterData: true, attributes: true });
}"""


def _make_view(rank: int, iteration: int) -> RankView:
    """Return a rank after this many iterations, the latest of which used more or less."""
    view = make_rank(rank, 1000 + iteration)
    times = tuple(120_000_000 + 1_000_000 * ((rank * 7 + (iteration + k) * 13) % 29) for k in range(LATEST))
    device = replace(
        view.devices[0],
        latest_ns=times,
        median_iteration_ns=sorted(times)[LATEST // 2],
        last_interval_ns=times[-1] // 10,
    )
    return replace(view, devices=(device,))


def _browser_cpu(session: object) -> tuple[float, float]:
    """Return the CPU seconds of the processes that draw pages, and of all processes of a browser."""
    answer = session.send("SystemInfo.getProcessInfo")  # type: ignore[attr-defined]
    used = [(each["type"], float(each["cpuTime"])) for each in answer["processInfo"]]
    return sum(s for kind, s in used if kind == "renderer"), sum(s for _, s in used)


def _server_cpu_s() -> float:
    """Return the CPU seconds of the exporter's threads."""
    ids = [each.ident for each in threading.enumerate() if each.name.startswith(THREADS) and each.ident is not None]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in ids)
