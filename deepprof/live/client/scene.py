"""The state of a daemon as a scene to show, polled again and again; it also shows when the daemon is away."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from deepprof.live.client.daemon import Daemon
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError
from deepprof.render.live import LiveScene

if TYPE_CHECKING:
    from deepprof.live.wire.figures import JobState, RankState

JOBS = 8  # number of first jobs whose ranks are queried


def look(daemon: Daemon, job: str = "") -> LiveScene:
    """Return the state of all jobs of the daemon, or of one, with the ranks of the first `JOBS` jobs."""
    state = daemon.look(job)
    jobs = _sort_jobs(each for each in state.jobs if not job or each.job == job)
    found = {each.job: _find_ranks(daemon, each.job, asked=bool(job)) for each in jobs[:JOBS]}
    ranks = {name: each for name, each in found.items() if each is not None}
    here = [each for each in jobs if found.get(each.job, ()) is not None]
    return LiveScene(str(daemon.endpoint.address), here, ranks, state.now_unix_ns)


def _find_ranks(daemon: Daemon, job: str, *, asked: bool) -> tuple[RankState, ...] | None:
    """Return the ranks of a job; None for a job removed since it was listed, which raises if it was `asked` for."""
    try:
        return daemon.ranks(job)
    except DaemonError as error:
        if asked or not error.absent:
            raise
        return None


def _sort_jobs(jobs: Iterable[JobState]) -> list[JobState]:
    """Return the jobs in the order in which they are shown: those with a rank connected first, then the newest."""
    return sorted(jobs, key=lambda job: (not job.connected, -job.first_seen_unix_ns, job.job))


def look_on(endpoint: Endpoint, job: str, wait: Callable[[], object]) -> Generator[LiveScene, None, None]:
    """Yield scenes without an end, with `wait` called in between; while the daemon is away, the last one with a notice.

    Raises `DaemonError` where the daemon refuses, or cannot be reached at first.
    """
    scene = None
    while True:
        try:
            with Daemon(endpoint) as daemon:
                while True:
                    scene = look(daemon, job)
                    yield scene
                    wait()
        except DaemonError as error:
            if scene is None or not error.passing:
                raise
            scene = replace(scene, notice=f"{error.problem}; trying again")
            yield scene
            wait()
