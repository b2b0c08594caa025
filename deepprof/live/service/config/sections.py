"""Every key of the configuration: its type, its default, what is allowed and what it means.

Attributes carry their unit (`_ns`, `nbytes`); in files and variables the unit is part of the value and not of the key
(`keep_for = "30d"`). Nothing here is secret: credentials are given as the path of their file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, field

if TYPE_CHECKING:
    from deepprof.live.wire.limits import WireLimits

Scope = Literal["ingest", "read", "admin"]

WIRE = ("message_nbytes", "batch_records", "names", "name_nbytes", "names_nbytes")  # what the wire checks

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
SECOND, MINUTE, HOUR, DAY = 10**9, 60 * 10**9, 3600 * 10**9, 86_400 * 10**9


def _says(text: str) -> Meta:
    return Meta(description=text)


def count(text: str, low: int, high: int) -> Meta:
    """Return the description of a whole number and its range."""
    return Meta(description=text, ge=low, le=high, extra={"kind": "count"})


def size(text: str, low: int, high: int) -> Meta:
    """Return the description of a size in bytes and its range."""
    return Meta(description=text, ge=low, le=high, extra={"kind": "nbytes"})


def time(text: str, low: int, high: int) -> Meta:
    """Return the description of a time in nanoseconds and its range."""
    return Meta(description=text, ge=low, le=high, extra={"kind": "duration"})


def _without_unit(attribute: str) -> str:
    """Return the key of an attribute: a time is written with its unit, so its key has none."""
    return attribute.removesuffix("_ns")


class _Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename=_without_unit):
    """What all sections have in common."""


class _ListenSection(_Section, frozen=True):
    """Where collectors and questions come in."""

    addresses: Annotated[
        tuple[str, ...],
        _says("unix:PATH or HOST:PORT, at most 8; none: deepprof/deepprof.sock in the user's runtime directory"),
    ] = ()
    socket_mode: Annotated[Literal["0600", "0660"], _says("who may use a Unix socket: its owner, or the group too")] = (
        "0600"
    )
    socket_group: Annotated[str, _says("the group of a Unix socket and its directory; empty: the daemon's")] = ""
    connections: Annotated[int, count("connections to an address at a time", 1, 65_536)] = 4096


class _MetricsSection(_Section, frozen=True):
    """Where Prometheus and browsers ask."""

    address: Annotated[str, _says("HOST:PORT of /metrics, /healthz, /readyz and the page; empty: none")] = (
        "127.0.0.1:7601"
    )
    exposed: Annotated[
        bool, _says("whether other hosts may ask too: all that the page shows is shown to anybody who does")
    ] = False
    hosts: Annotated[
        tuple[str, ...],
        _says(
            "names under which browsers may ask for the page, and profilers for profiles, besides localhost and "
            "addresses"
        ),
    ] = ()


class _StoreSection(_Section, frozen=True):
    """What the daemon writes."""

    path: Annotated[
        str, _says("the directory; empty: $STATE_DIRECTORY, else deepprof/store in the user's state directory")
    ] = ""


class TlsSection(_Section, frozen=True):
    """Certificates, PEM files. They are read again when they change."""

    cert: Annotated[str, _says("the daemon's certificate and those that signed it")] = ""
    key: Annotated[str, _says("its private key, without a passphrase")] = ""
    client_ca: Annotated[str, _says("who signs clients' certificates; when given, every client must have one")] = ""
    scopes: Annotated[tuple[Scope, ...], _says("what those may who show a certificate and no token")] = (
        "ingest",
        "read",
    )
    subjects: Annotated[
        dict[str, tuple[Scope, ...]], _says("what instead those may whose certificate has this common name")
    ] = field(default_factory=dict)


class TokensSection(_Section, frozen=True):
    """Who may do what."""

    file: Annotated[
        str,
        _says(
            "the file of tokens, a line each: NAME SCOPE[,SCOPE] TOKEN [KEY=VALUE], the token itself or sha256:DIGEST"
        ),
    ] = ""


class IngestLimits(_Section, frozen=True):
    """What clients may send; whatever breaks one is refused."""

    message_nbytes: Annotated[int, size("of a message", 64 * KIB, 64 * MIB)] = 16 * MIB
    batch_records: Annotated[int, count("rows of a batch", 1, 1 << 20)] = 65_536
    names: Annotated[int, count("names of a rank", 1, 1 << 24)] = 1 << 20
    name_nbytes: Annotated[int, size("of a name", 1, MIB)] = 64 * KIB
    names_nbytes: Annotated[int, size("of all names of a rank together", KIB, 4 * GIB)] = 64 * MIB
    streams: Annotated[int, count("streams of records at a time", 1, 65_536)] = 4096
    jobs: Annotated[int, count("jobs that are kept", 1, 100_000)] = 256
    ranks: Annotated[int, count("ranks of a job", 1, 1_000_000)] = 4096
    ranks_total: Annotated[int, count("ranks of all jobs together", 1, 1_000_000)] = 16_384
    queue_nbytes: Annotated[int, size("of records that wait, of all ranks together", 16 * MIB, TIB)] = 256 * MIB
    rank_queue_nbytes: Annotated[int, size("of records of a rank that wait", MIB, TIB)] = 16 * MIB
    waiting_nbytes: Annotated[
        int, size("of messages that wait for room in the queues, or for their sender's rate", 256 * MIB, TIB)
    ] = GIB


class ShareSection(_Section, frozen=True):
    """What one sender may have: the holder of a token, or of a certificate. A token's line may state otherwise."""

    ranks: Annotated[int, count("of its own that are kept; 0: as many as there may be", 0, 1_000_000)] = 0
    records_per_s: Annotated[int, count("that are taken from it; 0: as many as can be", 0, 10**9)] = 0
    kept_nbytes: Annotated[int, size("of its jobs' history; 0: as much as there may be", 0, 16 * TIB)] = 0
    jobs: Annotated[tuple[str, ...], _says("patterns of the jobs that it may write, with * and ?")] = ("*",)


class _JournalSection(_Section, frozen=True):
    """The raw records: what comes back after a crash, and the latest of which can be examined."""

    segment_nbytes: Annotated[int, size("of one file", MIB, GIB)] = 64 * MIB
    total_nbytes: Annotated[int, size("of all files", 4 * MIB, 16 * TIB)] = 2 * GIB


class _HistorySection(_Section, frozen=True):
    """The iterations, and what calling contexts did; the latter uses at most a quarter of `keep_nbytes`."""

    seal_after_ns: Annotated[int, time("age at which iterations move from SQLite to Parquet", SECOND, 365 * DAY)] = HOUR
    merge_contexts_after_ns: Annotated[
        int, time("age at which minutes of calling contexts become hours", MINUTE, 3650 * DAY)
    ] = 6 * HOUR
    keep_for_ns: Annotated[int, time("age at which they go", MINUTE, 3650 * DAY)] = 30 * DAY
    keep_nbytes: Annotated[int, size("on disk before the oldest go", MIB, 16 * TIB)] = 10 * GIB


class _CapturesSection(_Section, frozen=True):
    """Raw windows that are kept around anomalies."""

    count: Annotated[int, count("of all jobs; the oldest go first", 0, 100_000)] = 64
    nbytes: Annotated[int, size("of all of them", 0, 16 * TIB)] = 4 * GIB


class _ExamineSection(_Section, frozen=True):
    """The whole diagnosis, run on a job's latest records by its own process."""

    every_ns: Annotated[int, time("from one examination of a job to the next", SECOND, DAY)] = MINUTE
    ranks: Annotated[int, count("of a job that are looked at together", 1, 4096)] = 8
    timeout_ns: Annotated[int, time("after which an examination is stopped", SECOND, HOUR)] = 5 * MINUTE
    memory_nbytes: Annotated[int, size("that an examination may take", 256 * MIB, 16 * TIB)] = 4 * GIB


class _ExporterSection(_Section, frozen=True):
    """What is exported to Prometheus."""

    series: Annotated[int, count("series; what is over is left out and counted", 100, 10_000_000)] = 100_000
    contexts: Annotated[int, count("lines of code of a rank with a series each; all others are one", 1, 1000)] = 20
    job_ttl_ns: Annotated[int, time("a rank not heard of for so long is left out", SECOND, 30 * DAY)] = 15 * MINUTE
    model_flops: Annotated[
        tuple[str, ...],
        _says("what the model computes: JOBS=FLOP/PEAK, FLOP of an iteration on a device, its peak in FLOP/s"),
    ] = ()


class LogSection(_Section, frozen=True):
    """What the daemon states, on stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], _says("the least that is said")] = "info"
    format: Annotated[
        Literal["auto", "json", "text"], _says("a JSON object per line, or text; auto: text on a terminal")
    ] = "auto"


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole configuration."""

    insecure: Annotated[bool, _says("listen on other than loopback addresses without TLS and credentials")] = False
    listen: _ListenSection = _ListenSection()
    metrics: _MetricsSection = _MetricsSection()
    store: _StoreSection = _StoreSection()
    tls: TlsSection = TlsSection()
    tokens: TokensSection = TokensSection()
    limits: IngestLimits = IngestLimits()
    share: ShareSection = ShareSection()
    journal: _JournalSection = _JournalSection()
    history: _HistorySection = _HistorySection()
    captures: _CapturesSection = _CapturesSection()
    examine: _ExamineSection = _ExamineSection()
    exporter: _ExporterSection = _ExporterSection()
    log: LogSection = LogSection()

    def wire_limits(self) -> WireLimits:
        """Return the limits that messages are checked against."""
        from deepprof.live.wire.limits import WireLimits

        return WireLimits(**{name: getattr(self.limits, name) for name in WIRE})
