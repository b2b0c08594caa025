"""What runs now: jobs that a daemon watches, with their ranks, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepprof.render.units import ABSENT, format_count, format_duration, format_ratio

if TYPE_CHECKING:
    from deepprof.client.values import DeviceState, JobState, RankState

__all__ = ["Scene", "draw_scene"]

Line = tuple[str, str]
"""A line and its style."""

GAP = 2
INDENT = 2
AROUND = 6  # lines of a job beside its rows
FEWEST = 3  # rows of a job, however low the screen
STYLES = {"locked": "", "learning": "yellow", "lost": "bold red", "away": "bold yellow", "ended": "dim"}


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to see: a daemon, its jobs, the ranks of each, and its time.

    `notice` is said instead of nothing when the daemon is away; the rest is then what was last seen.
    """

    address: str
    jobs: Sequence[JobState] = ()
    ranks: Mapping[str, Sequence[RankState]] | None = None
    now_unix_ns: int = 0
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One device of a rank; a rank without any has one row all the same."""

    rank: RankState
    device: DeviceState | None
    now_unix_ns: int

    @property
    def state(self) -> str:
        """What is to be said of it first."""
        if self.rank.ended:
            return "ended"
        if not self.rank.connected:
            return "away"
        return self.device.state if self.device is not None else "no events"


@dataclass(frozen=True, slots=True)
class Column:
    """A column; where the width is short, those of the highest `rank` go first."""

    title: str
    rank: int
    show: Callable[[Row], str]


def draw_scene(scene: Scene, width: int, height: int | None = None) -> list[Line]:
    """Return the lines of `scene`, none wider than `width` columns; of many ranks so many that `height` is enough."""
    lines = [*draw_head(scene)]
    if not scene.jobs and not scene.notice:
        lines.append(("no job has sent anything yet; deepprof send, or a collector, sends records", "dim"))
    room = None if height is None else max((height - len(lines)) // max(len(scene.jobs), 1) - AROUND, FEWEST)
    for job in scene.jobs:
        lines.append(("", ""))
        lines += draw_job(job, (scene.ranks or {}).get(job.job, ()), scene.now_unix_ns, width, room)
    return [(cut(text, width), style) for text, style in (lines if height is None else lines[:height])]


def draw_head(scene: Scene) -> Iterator[Line]:
    """Yield where the daemon is, and what it watches in all."""
    connected, ranks = sum(job.connected for job in scene.jobs), sum(job.ranks for job in scene.jobs)
    words = [scene.address, format_count(len(scene.jobs), "job"), f"{connected:,} of {ranks:,} ranks connected"]
    yield " · ".join(words if scene.jobs else words[:1]), "bold"
    if scene.notice:
        yield scene.notice, "bold red"


def draw_job(
    job: JobState, ranks: Sequence[RankState], now_unix_ns: int, width: int, room: int | None
) -> Iterator[Line]:
    """Yield a job's own lines, and a row for every device of its ranks, at most `room` of them."""
    parts = [format_count(job.ranks, "rank"), format_count(job.iterations, "iteration"), *describe_losses(job)]
    yield job.job, "bold"
    yield " " * INDENT + " · ".join(parts), ""
    if job.active_findings:
        yield f"{' ' * INDENT}▲ {', '.join(job.active_findings)}", "bold yellow"
    rows = [Row(rank, device, now_unix_ns) for rank in ranks for device in rank.devices or (None,)]
    yield from draw_rows(choose_rows(rows, room), width)
    if room is not None and len(rows) > room:
        yield f"{' ' * INDENT}and {len(rows) - room:,} more", "dim"


def describe_losses(job: JobState) -> Iterator[str]:
    """Yield what of the job's records did not come to be looked at."""
    account = job.account
    dropped = sum(account.dropped.values())
    counts = (("dropped", dropped), ("invalid", account.invalid), ("lost on the way", account.lost))
    yield from (f"{count:,} {word}" for word, count in counts if count)


def choose_rows(rows: Sequence[Row], room: int | None) -> Sequence[Row]:
    """Return the rows to show: where not all fit, those that deserve a look before the others."""
    if room is None or len(rows) <= room:
        return rows
    places = sorted(range(len(rows)), key=lambda at: (rows[at].state in {"locked", "ended"}, at))[:room]
    return [rows[at] for at in sorted(places)]


def draw_rows(rows: Sequence[Row], width: int) -> Iterator[Line]:
    """Yield a heading and the rows under it."""
    if not rows:
        return
    columns = fit_columns(rows, width - INDENT)
    cells = [[column.show(row) for column in columns] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for texts, style in [(titles, "dim"), *zip(cells, [STYLES.get(row.state, "") for row in rows], strict=True)]:
        padded = (text.rjust(size) for text, size in zip(texts, widths, strict=True))
        yield " " * INDENT + (" " * GAP).join(padded), style


def fit_columns(rows: Sequence[Row], width: int) -> list[Column]:
    """Return the columns that fit beside each other; the first ones stay whatever the width."""
    several = any(len(row.rank.devices) > 1 for row in rows)
    columns = [column for column in COLUMNS if several or column.title != "device"]
    while measure(columns, rows) > width and any(column.rank for column in columns):
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def measure(columns: Sequence[Column], rows: Sequence[Row]) -> int:
    """Return how wide a table of `columns` is."""
    widths = [max(len(column.title), *(len(column.show(row)) for row in rows)) for column in columns]
    return sum(widths) + GAP * (len(widths) - 1)


def show_time(value_of: Callable[[DeviceState], int]) -> Callable[[Row], str]:
    """Return what shows a time of a device, nothing where none is known."""
    return lambda row: format_duration(value_of(row.device)) if row.device and value_of(row.device) else ABSENT


def show_share(row: Row) -> str:
    """Return the interval as a share of the iteration that it ends."""
    device = row.device
    known = device is not None and device.last_iteration_ns > 0
    return format_ratio(device.last_interval_ns / device.last_iteration_ns) if device and known else ABSENT


def show_age(row: Row) -> str:
    """Return how long ago the last record came."""
    last = row.rank.last_record_unix_ns
    return format_duration(max(row.now_unix_ns - last, 0)) if last else ABSENT


def show_losses(row: Row) -> str:
    """Return the records that were not looked at."""
    account = row.rank.account
    return f"{sum(account.dropped.values()) + account.invalid + account.lost:,}"


def cut(text: str, width: int) -> str:
    """Return `text`, which names of others may have made longer, in `width` columns."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


COLUMNS = (
    Column("rank", 0, lambda row: str(row.rank.rank)),
    Column("device", 1, lambda row: str(row.device.device) if row.device else ABSENT),
    Column("state", 0, lambda row: row.state),
    Column("iterations", 2, lambda row: f"{row.device.iterations:,}" if row.device else ABSENT),
    Column("last", 3, show_time(lambda device: device.last_iteration_ns)),
    Column("median", 5, show_time(lambda device: device.median_iteration_ns)),
    Column("interval", 4, show_share),
    Column("heard", 6, show_age),
    Column("not seen", 7, show_losses),
    Column("host", 8, lambda row: row.rank.host or ABSENT),
)
