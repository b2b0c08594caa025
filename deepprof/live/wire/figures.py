"""A daemon's answers as plain values: times in ns (`_unix_ns` on the daemon's clock), shares as ratios from 0 to 1.

Names are those of the messages in `proto/deepprof/v1`, where every field is described; a value that is absent there is
None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import polars as pl

Kind = TypeVar("Kind")
MinerState = Literal["unknown", "learning", "locked", "lost"]
CollectorLevel = Literal["unknown", "full", "duty", "off"]
ENUMS = (MinerState, CollectorLevel)  # their words are in the order of the protocol's numbers


@dataclass(frozen=True, slots=True)
class KindAccount:
    """What became of the durable records of one kind: an activity of device events, or another record table."""

    kind: str
    accepted: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the records received: `received == accepted + Σ dropped + invalid + duplicate`.

    `gaps` counts gap messages, `lost` the records that they report as missing (those were never received). `kinds` has
    the accepted records by kind, and the dropped ones among the durable. `missing` counts the records that the
    collector reports as not sent, by reason: the lost ones, and those that its End counts.
    """

    received: int = 0
    accepted: int = 0
    invalid: int = 0
    duplicate: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    gaps: int = 0
    lost: int = 0
    kinds: tuple[KindAccount, ...] = ()
    missing: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def adds_up(self) -> bool:
        """Whether every record received is in exactly one of the other counts."""
        return self.received == self.accepted + self.invalid + self.duplicate + sum(self.dropped.values())


@dataclass(frozen=True, slots=True)
class JobState:
    """A job: how many ranks it has, the account of their records, and the rules with an open finding."""

    job: str
    ranks: int = 0
    connected: int = 0
    ended: int = 0
    first_seen_unix_ns: int = 0
    last_record_unix_ns: int = 0
    iterations: int = 0
    account: Account = field(default_factory=Account)
    active_findings: tuple[str, ...] = ()
    sender: str = ""
    kept_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The limits of a sender; 0: no limit of its own. `jobs` are patterns of the jobs that it may write."""

    ranks: int = 0
    records_per_s: int = 0
    kept_nbytes: int = 0
    jobs: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class SenderState:
    """A sender, named after its token or its other proof of identity, and what it uses of the daemon."""

    sender: str
    jobs: int = 0
    ranks: int = 0
    connected: int = 0
    records: int = 0
    paced_ns: int = 0
    waiting_nbytes: int = 0
    kept_nbytes: int = 0
    refused: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    share: Share = field(default_factory=Share)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The loop followed on a device now; with a `period` of 0 there is none so far."""

    device: int
    stream: int = 0
    state: MinerState = "unknown"
    loop: int = 0
    period: int = 0
    confidence_ratio: float = 0.0
    evidence: str = ""
    boundary_source: str = ""
    iterations: int = 0
    last_iteration_start_ns: int = 0
    last_iteration_ns: int = 0
    last_interval_ns: int = 0
    median_iteration_ns: int = 0
    foreign_kernels: int = 0
    resets: int = 0


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """The last status of a rank's collector: how much it records, why, and what that costs the rank's host."""

    level: CollectorLevel = "unknown"
    reason: str = ""
    since_unix_ns: int = 0
    duty_ratio: float = 0.0
    overhead_ratio: float = 0.0
    spool_nbytes: int = 0
    lost: int = 0
    level_changes: int = 0
    notice: str = ""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """What a stage of training takes of an iteration: means over the complete ones of a rank's longest loop.

    The device works for it `busy_ns` and waits `idle_ns` for its first or next event; the threads that launch are in it
    `host_ns`, None where that is not recorded. `confidence_ratio` is None where it has no work of the device.
    """

    stage: str
    busy_ns: int = 0
    idle_ns: int = 0
    host_ns: int | None = None
    confidence_ratio: float | None = None

    @property
    def device_ns(self) -> int:
        """How long the device works or waits for it."""
        return self.busy_ns + self.idle_ns


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """What a line of code took, with the operators and frameworks that it called: since it leads, and of late."""

    context: str
    host_ns: int = 0
    device_ns: int = 0
    latest_host_ns: int = 0
    latest_device_ns: int = 0


@dataclass(frozen=True, slots=True)
class LeadingFigures:
    """The lines of code that take most of a rank's time, the largest first, and all others together.

    `latest_…` figures are of a window of `window_ns`.
    """

    lines: tuple[ContextFigures, ...] = ()
    other: ContextFigures = field(default_factory=lambda: ContextFigures(""))
    window_ns: int = 0


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank: the collector that sends its records, what became of them, its devices, and its examined stages.

    `contexts` are those of its lines of code that lead, None where it sends no calling contexts.
    """

    job: str
    rank: int
    world_size: int = 0
    host: str = ""
    collector: str = ""
    connected: bool = False
    ended: bool = False
    settled: bool = False
    first_seen_unix_ns: int = 0
    last_record_unix_ns: int = 0
    clock_offset_ns: int = 0
    account: Account = field(default_factory=Account)
    devices: tuple[DeviceState, ...] = ()
    status: CollectorStatus | None = None
    stages: tuple[StageFigures, ...] = ()
    contexts: LeadingFigures | None = None


@dataclass(frozen=True, slots=True)
class FollowedLoop:
    """A loop that was followed on a rank's device, now or before."""

    rank: int
    device: int
    loop: int
    period: int = 0
    confidence_ratio: float = 0.0
    evidence: str = ""
    boundary_source: str = ""
    iterations: int = 0


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """The metrics of the paper's Table III for a loop; None where no iteration has a value."""

    rank: int
    device: int
    loop: int
    iterations: int = 0
    avg_interval_ns: int | None = None
    max_interval_ns: int | None = None
    avg_overlap_ratio: float | None = None
    avg_operation_ns: int | None = None
    avg_size_nbytes: int | None = None
    median_iteration_ns: int | None = None
    p5_iteration_ns: int | None = None
    p95_iteration_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveFinding:
    """A rule's finding in the latest records, present in every examination since `active_since_unix_ns`."""

    rule: str
    severity: str
    title: str = ""
    summary: str = ""
    advice: str = ""
    rank: int | None = None
    confidence_ratio: float = 0.0
    active_since_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of a job's last examination, and the whole report (`deepprof.report/1`) as JSON.

    `examined_unix_ns` is 0, and the report empty, before the first examination.
    """

    findings: tuple[ActiveFinding, ...] = ()
    examined_unix_ns: int = 0
    report: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ContextHistory:
    """What calling contexts of a job did in a time; `rank` is None for all ranks together.

    `nodes` has a row for each context, callers first: `context`, `parent` (0: none), `kind`, `name` and `line`, as
    `trace.context_nodes` but for the text. `sums` has a row for each context and window: `time_ns`, `window_ns`,
    `context`, `count`, `host_ns` with that of callees, and `device_count` and `device_ns` of what it launched itself.
    `windows` were merged into those of `sums`, of at least `step_ns`; `folded` is how often contexts began that were
    too many, and count for those above. `earliest_ns` is when the first window began that is kept, None without any.
    """

    job: str
    rank: int | None
    nodes: pl.DataFrame
    sums: pl.DataFrame
    windows: int
    folded: int
    step_ns: int
    earliest_ns: int | None


@dataclass(frozen=True, slots=True)
class Capture:
    """Raw records that the daemon keeps as a trace: `name` is a folder in its store."""

    name: str
    job: str = ""
    rank: int = 0
    reason: str = ""
    taken_unix_ns: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class WatchState:
    """The state at the daemon's time `now_unix_ns`: all jobs, and the ranks of the job asked for."""

    jobs: tuple[JobState, ...] = ()
    ranks: tuple[RankState, ...] = ()
    now_unix_ns: int = 0


def build(kind: type[Kind], message: Any) -> Kind:
    """Return a protobuf message as the value `kind`, whose fields have the message's names."""
    return kind(**{name: _read_field(hint, message, name) for name, hint in _find_fields(kind)})  # type: ignore[arg-type]


@cache
def _find_fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the names and types of a value's fields."""
    hints = get_type_hints(kind)
    return tuple((each.name, hints[each.name]) for each in dataclasses.fields(kind))


def _read_field(hint: Any, message: Any, name: str) -> Any:
    """Return one field of a message as the type `hint`."""
    if type(None) in get_args(hint):
        if not message.HasField(name):
            return None
        (hint,) = set(get_args(hint)) - {type(None)}
    value = getattr(message, name)
    if hint in ENUMS:
        words = get_args(hint)
        return words[value] if 0 <= value < len(words) else words[0]
    if get_origin(hint) is tuple:
        return tuple(_convert(get_args(hint)[0], each) for each in value)
    return MappingProxyType(dict(value)) if hint == Mapping[str, int] else _convert(hint, value)


def _convert(hint: Any, value: Any) -> Any:
    """Return a message as the value `hint`, and anything else unchanged."""
    return build(hint, value) if dataclasses.is_dataclass(hint) and isinstance(hint, type) else value
