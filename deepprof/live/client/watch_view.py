"""What a daemon watches, polled again and again, as lines for a terminal: jobs with their ranks, what is kept, senders.

It also shows when the daemon is away. Columns of single figures are declared with them (`wire.figures`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from deepprof.live.client.daemon import Daemon
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError
from deepprof.live.wire.declarations import find_figures
from deepprof.live.wire.figures import Account, DeviceState, JobState, RankState, SenderState, StageFigures
from deepprof.plurals import counted
from deepprof.render.anatomy import describe_doubt
from deepprof.render.live_table import INDENT, Line, LiveColumn, cut, draw_table
from deepprof.render.plain import printable
from deepprof.render.units import ABSENT, format_bytes, format_duration, format_ratio

JOBS = 8  # number of first jobs whose ranks are queried
AROUND = 8  # lines of a job next to its rows
MIN_ROWS = 3  # rows of a job, however low the screen
SILENT_NS = 300 * 10**9  # without a record, as in the alert CollectorSilent
STYLES = {
    "locked": "",
    "silent": "bold yellow",
    "learning": "yellow",
    "lost": "bold red",
    "away": "bold yellow",
    "ended": "dim",
}
THROTTLED = ("duty", "off")
NAME_COLUMNS = 40  # of a job's name in a table, and of a line of code
MOST_CONTEXTS = 3  # lines of code of a job
JOINT = " · "
UNKNOWN_SENDER = "(not known)"


@dataclass(frozen=True, slots=True)
class LiveScene:
    """What is shown: a daemon, its jobs, the ranks of those that are shown in detail, and its time.

    `notice` is a message for when the daemon is away; the rest is then the last known state.
    """

    address: str
    jobs: Sequence[JobState] = ()
    ranks: Mapping[str, Sequence[RankState]] | None = None
    now_unix_ns: int = 0
    notice: str = ""


@dataclass(frozen=True, slots=True)
class _LiveRow:
    """One device of a rank; a rank without devices has one row, too."""

    rank: RankState
    device: DeviceState | None
    now_unix_ns: int

    @property
    def state(self) -> str:
        """The state that matters most."""
        if self.rank.ended:
            return "ended"
        if not self.rank.connected:
            return "away"
        if _is_silent(self.rank.last_record_unix_ns, self.now_unix_ns):
            return "silent"
        return self.device.state if self.device is not None else "no events"

    @property
    def level(self) -> str:
        """How much its collector records; empty where that is everything or unknown now."""
        status = self.rank.status
        told = status is not None and self.rank.connected and not self.rank.ended
        return status.level if status is not None and told and status.level in THROTTLED else ""


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


def draw_scene(scene: LiveScene, width: int, height: int | None = None) -> list[Line]:
    """Return the lines of `scene`, none wider than `width` columns, with as many jobs and ranks as fit `height`.

    A job has a block of lines with its ranks; where not all blocks fit, all jobs have a line each instead.
    """
    lines = [*_draw_head(scene, width)]
    if not scene.jobs and not scene.notice:
        lines.append(("no job has sent anything yet; deepprof send, or a collector, sends records", "dim"))
    lines += _draw_blocks(scene, width) if height is None else _fit_jobs(scene, width, height - len(lines))
    return [(cut(text, width), style) for text, style in (lines if height is None else lines[:height])]


def _draw_head(scene: LiveScene, width: int) -> Iterator[Line]:
    """Yield the daemon's address and the totals of what it watches."""
    connected, ranks = sum(job.connected for job in scene.jobs), sum(job.ranks for job in scene.jobs)
    counts = f"{counted(len(scene.jobs), 'job')} · {connected:,} of {counted(ranks, 'rank')} connected"
    line = f"{scene.address} · {counts}" if scene.jobs else scene.address
    yield from ((text, "bold") for text in ([line] if len(line) <= width else [scene.address, counts]))
    if scene.notice:
        yield scene.notice, "bold red"


def _fit_jobs(scene: LiveScene, width: int, height: int) -> list[Line]:
    """Return the lines on the jobs, as many as fit into `height` lines."""
    room = max(height // max(len(scene.jobs), 1) - AROUND, MIN_ROWS)
    if len(scene.jobs) == 1 or not _has_more(scene):
        blocks = list(_draw_blocks(scene, width, room))
        if len(scene.jobs) == 1 or len(blocks) <= height:
            return blocks
    shown = scene.jobs if len(scene.jobs) <= height - 2 else scene.jobs[: max(height - 3, 1)]
    lines = [("", ""), *_draw_jobs(scene, shown, width)]
    if len(shown) < len(scene.jobs):
        lines.append((f"{' ' * INDENT}and {len(scene.jobs) - len(shown):,} more; --job NAME shows one", "dim"))
    return lines


def _has_more(scene: LiveScene) -> bool:
    """Return whether there are jobs without details."""
    return any(job.job not in (scene.ranks or {}) for job in scene.jobs)


def _draw_blocks(scene: LiveScene, width: int, room: int | None = None) -> Iterator[Line]:
    """Yield a block for every job with details, at most `room` ranks in each, then a line for each of the others."""
    details = scene.ranks or {}
    for job in scene.jobs:
        if job.job in details:
            yield "", ""
            yield from _draw_job(job, details[job.job], scene.now_unix_ns, width, room)
    others = [job for job in scene.jobs if job.job not in details]
    if others:
        yield "", ""
        yield from _draw_jobs(scene, others, width)


def _draw_jobs(scene: LiveScene, jobs: Sequence[JobState], width: int) -> Iterator[Line]:
    columns: tuple[LiveColumn[JobState], ...] = (
        LiveColumn("job", 0, lambda job: cut(job.job, NAME_COLUMNS), left=True),
        LiveColumn("state", 0, lambda job: _find_state(job, scene.now_unix_ns), left=True),
        LiveColumn("connected", 3, lambda job: f"{job.connected:,} of {job.ranks:,}"),
        LiveColumn("iterations", 2, lambda job: _show_iterations(job, (scene.ranks or {}).get(job.job))),
        LiveColumn("heard", 4, lambda job: _show_since(job.last_record_unix_ns, scene.now_unix_ns)),
        LiveColumn("not seen", 5, lambda job: f"{_count_losses(job.account):,}"),
        LiveColumn("findings", 1, _show_findings, left=True),
    )
    yield from draw_table(jobs, columns, width, lambda job: _style_job(job, scene.now_unix_ns))


def _find_state(job: JobState, now_unix_ns: int) -> str:
    """Return the state of a job that matters most."""
    if job.connected:
        return "silent" if _is_silent(job.last_record_unix_ns, now_unix_ns) else "running"
    return "ended" if job.ended == job.ranks else "away"


def _is_silent(last_record_unix_ns: int, now_unix_ns: int) -> bool:
    """Return whether a connected rank or job has sent nothing for long: it stopped, or waits for something."""
    return bool(last_record_unix_ns) and now_unix_ns - last_record_unix_ns >= SILENT_NS


def _style_job(job: JobState, now_unix_ns: int) -> str:
    return "yellow" if job.active_findings else STYLES.get(_find_state(job, now_unix_ns), "")


def _count_iterations(ranks: Sequence[RankState]) -> tuple[int, int]:
    """Return the fewest and the most iterations of a rank; devices of one rank run the same iterations."""
    counts = [max((device.iterations for device in rank.devices), default=0) for rank in ranks]
    return min(counts, default=0), max(counts, default=0)


def _show_iterations(job: JobState, ranks: Sequence[RankState] | None) -> str:
    """Return a job's iterations on every rank; without the ranks their mean."""
    if not ranks:
        return f"{round(job.iterations / max(job.ranks, 1)):,}"
    fewest, most = _count_iterations(ranks)
    return f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"


def _describe_iterations(job: JobState, ranks: Sequence[RankState]) -> str:
    fewest, most = _count_iterations(ranks)
    several = counted(most, "iteration") if fewest == most else f"{fewest:,} to {counted(most, 'iteration')}"
    return f"{several} each" if job.ranks > 1 else several


def _show_findings(job: JobState) -> str:
    """Return the first finding, and how many more there are."""
    more = len(job.active_findings) - 1
    return f"{job.active_findings[0]}{f' +{more}' if more else ''}" if job.active_findings else ABSENT


def _draw_job(
    job: JobState, ranks: Sequence[RankState], now_unix_ns: int, width: int, room: int | None
) -> Iterator[Line]:
    """Yield a job's own lines, and a row for every device of its ranks, at most `room` of them."""
    parts = [counted(job.ranks, "rank"), _describe_iterations(job, ranks), *_describe_losses(job)]
    yield job.job, "bold"
    yield " " * INDENT + " · ".join(parts), ""
    if job.active_findings:
        yield f"{' ' * INDENT}▲ {', '.join(job.active_findings)}", "bold yellow"
    yield from _draw_stages(ranks, width)
    yield from _draw_contexts(ranks, width)
    rows = [_LiveRow(rank, device, now_unix_ns) for rank in ranks for device in rank.devices or (None,)]
    yield from _draw_rows(_choose_rows(rows, room), width)
    if room is not None and len(rows) > room:
        yield f"{' ' * INDENT}and {len(rows) - room:,} more", "dim"


def _draw_stages(ranks: Sequence[RankState], width: int) -> Iterator[Line]:
    """Yield a line with the stages of the first rank that has some; the shortest are left out where not all fit."""
    rank = next((each for each in ranks if any(stage.device_ns for stage in each.stages)), None)
    if rank is None:
        return
    shown = [stage for stage in rank.stages if stage.device_ns]
    title = f"{' ' * INDENT}stages of rank {rank.rank}: " if len(ranks) > 1 else f"{' ' * INDENT}stages: "
    while len(line := title + " · ".join(map(_show_stage, shown))) > width and len(shown) > 1:
        shown.remove(min(shown, key=lambda stage: stage.device_ns))
    yield line, ""


def _draw_contexts(ranks: Sequence[RankState], width: int) -> Iterator[Line]:
    """Yield a line with the lines of code that used most of the latest window, of the first rank that sends contexts.

    It is time on devices where any is in use; of too many the last are left out.
    """
    found = next(((each, each.contexts) for each in ranks if each.contexts is not None), None)
    if found is None:
        return
    rank, contexts = found
    every = (*contexts.lines, contexts.other)
    on_device = any(each.latest_device_ns for each in every)
    times = [(each.latest_device_ns if on_device else each.latest_host_ns, each.context) for each in every]
    whole, shown = sum(time for time, _ in times), sorted((each for each in times if all(each)), reverse=True)
    of = f" of rank {rank.rank}" if len(ranks) > 1 else ""
    title = f"{' ' * INDENT}{'device' if on_device else 'host'} time{of}: "
    parts = [f"{cut(printable(name), NAME_COLUMNS)} {format_ratio(time / whole)}" for time, name in shown]
    del parts[MOST_CONTEXTS:]
    while len(title + JOINT.join(parts)) > width and len(parts) > 1:
        parts.pop()
    if parts:
        yield title + JOINT.join(parts), ""


def _show_stage(stage: StageFigures) -> str:
    return f"{stage.stage} {format_duration(stage.device_ns)}{describe_doubt(stage.confidence_ratio)}"


def _describe_losses(job: JobState) -> Iterator[str]:
    """Yield how many of the job's records were not examined, by reason."""
    account = job.account
    dropped = sum(account.dropped.values())
    counts = (("dropped", dropped), ("invalid", account.invalid), ("lost on the way", account.lost))
    yield from (f"{count:,} {word}" for word, count in counts if count)


def _choose_rows(rows: Sequence[_LiveRow], room: int | None) -> Sequence[_LiveRow]:
    """Return the rows to show: where not all fit, those that need attention before the others."""
    if room is None or len(rows) <= room:
        return rows
    places = sorted(
        range(len(rows)), key=lambda at: (rows[at].state in {"locked", "ended"} and not rows[at].level, at)
    )[:room]
    return [rows[at] for at in sorted(places)]


def _draw_rows(rows: Sequence[_LiveRow], width: int) -> Iterator[Line]:
    several = any(len(row.rank.devices) > 1 for row in rows)
    throttled = any(row.level for row in rows)
    left_out = {title for title, shown in (("device", several), ("level", throttled)) if not shown}
    columns = [column for column in COLUMNS if column.title not in left_out]
    yield from draw_table(
        rows, columns, width, lambda row: STYLES.get(row.state, "") or ("yellow" if row.level else "")
    )


def _list_columns(
    kind: type, find: Callable[[_LiveRow], RankState | DeviceState | None]
) -> Iterator[LiveColumn[_LiveRow]]:
    for name, each in find_figures(kind).items():
        if each.column is not None:
            yield LiveColumn(*each.column, partial(_show_figure, find, name))


def _show_figure(find: Callable[[_LiveRow], RankState | DeviceState | None], name: str, row: _LiveRow) -> str:
    """Return a figure of a row in its unit, `ABSENT` where none is available."""
    value = getattr(find(row), name, None)
    if value is None or isinstance(value, str):
        return value or ABSENT
    if name.endswith("_ns"):
        return format_duration(value or None)
    if name.endswith("nbytes"):
        return format_bytes(value)
    return format_ratio(value) if name.endswith("_ratio") else f"{value:,}"


def _show_share(row: _LiveRow) -> str:
    device = row.device
    known = device is not None and device.last_iteration_ns > 0
    return format_ratio(device.last_interval_ns / device.last_iteration_ns) if device and known else ABSENT


def _show_since(unix_ns: int, now_unix_ns: int) -> str:
    """Return how long ago the last record came."""
    return format_duration(max(now_unix_ns - unix_ns, 0)) if unix_ns else ABSENT


def _count_losses(account: Account) -> int:
    return sum(account.dropped.values()) + account.invalid + account.lost


COLUMNS: tuple[LiveColumn[_LiveRow], ...] = (
    LiveColumn("rank", 0, lambda row: str(row.rank.rank)),
    LiveColumn("device", 1, lambda row: str(row.device.device) if row.device else ABSENT),
    LiveColumn("state", 0, lambda row: row.state),
    LiveColumn("level", 0, lambda row: row.level or "full"),
    *_list_columns(DeviceState, lambda row: row.device),
    LiveColumn("interval", 4, _show_share),
    LiveColumn("heard", 6, lambda row: _show_since(row.rank.last_record_unix_ns, row.now_unix_ns)),
    LiveColumn("not seen", 7, lambda row: f"{_count_losses(row.rank.account):,}"),
    *_list_columns(RankState, lambda row: row.rank),
)


def draw_jobs_held(jobs: Sequence[JobState], now_unix_ns: int, width: int) -> Iterator[Line]:
    """Yield a table of jobs, none of its lines wider than `width` columns where names allow."""
    columns: tuple[LiveColumn[JobState], ...] = (
        LiveColumn("job", 0, lambda job: cut(job.job, NAME_COLUMNS), left=True),
        LiveColumn("state", 2, lambda job: _find_state(job, now_unix_ns), left=True),
        LiveColumn("sender", 1, lambda job: job.sender or UNKNOWN_SENDER, left=True),
        LiveColumn("connected", 5, lambda job: f"{job.connected:,} of {job.ranks:,}"),
        LiveColumn("iterations", 4, lambda job: f"{job.iterations:,}"),
        LiveColumn("kept", 0, lambda job: format_bytes(job.kept_nbytes or None)),
        LiveColumn("heard", 3, lambda job: _show_since(job.last_record_unix_ns, now_unix_ns)),
    )
    yield from draw_table(jobs, columns, width, lambda job: "" if job.connected else "dim")


def draw_senders(senders: Sequence[SenderState], width: int) -> Iterator[Line]:
    """Yield a table of senders: what each has, and its limits."""
    columns: tuple[LiveColumn[SenderState], ...] = (
        LiveColumn("sender", 0, lambda each: each.sender or UNKNOWN_SENDER, left=True),
        LiveColumn("jobs", 4, lambda each: f"{each.jobs:,}"),
        LiveColumn("ranks", 0, lambda each: _of(f"{each.ranks:,}", each.share.ranks and f"{each.share.ranks:,}")),
        LiveColumn("connected", 5, lambda each: f"{each.connected:,}"),
        LiveColumn("records", 3, lambda each: f"{each.records:,}"),
        LiveColumn("per second", 8, lambda each: _at_most(each.share.records_per_s)),
        LiveColumn("held back", 6, lambda each: format_duration(each.paced_ns or None)),
        LiveColumn("waiting", 7, lambda each: format_bytes(each.waiting_nbytes)),
        LiveColumn("kept", 1, _show_kept),
        LiveColumn("refused", 2, lambda each: _show_refused(each.refused), left=True),
        LiveColumn("may write", 9, lambda each: cut(", ".join(each.share.jobs), NAME_COLUMNS), left=True),
    )
    yield from draw_table(senders, columns, width, lambda each: "yellow" if each.refused else "")


def _show_kept(sender: SenderState) -> str:
    most = sender.share.kept_nbytes
    return _of(format_bytes(sender.kept_nbytes or None), format_bytes(most) if most else "")


def _of(held: str, most: str | int) -> str:
    """Return what is kept, with the limit where there is one."""
    return f"{held} of {most}" if most else held


def _at_most(number: int) -> str:
    return f"{number:,}" if number else ABSENT


def _show_refused(refused: Mapping[str, int]) -> str:
    """Return the most frequent reason for refusals with its count, and how many other reasons there are."""
    if not refused:
        return ABSENT
    reason = max(refused, key=lambda each: refused[each])
    more = len(refused) - 1
    return f"{refused[reason]:,} {reason}{f' +{more}' if more else ''}"
