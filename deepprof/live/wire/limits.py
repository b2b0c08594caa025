"""How much one message, and all messages of one rank together, may hold."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "COUNT_LIMIT",
    "LIMITS",
    "MESSAGE_RECORDS",
    "NOTICE_CHARS",
    "OVERHEAD_LIMIT",
    "STATUS_NBYTES",
    "WIDEST",
    "WireLimits",
]

COUNT_LIMIT = 2**62  # of records and their numbers: sums of two stay inside int64
MESSAGE_RECORDS = 2**32 - 1  # that one message stands for: what a frame of the journal can say
STATUS_NBYTES = 4096
NOTICE_CHARS = 256
OVERHEAD_LIMIT = 1024.0  # cores: more than any host has that trains


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What the daemon takes; the defaults are those that the comments of `records.proto` name.

    `rank` is the highest number of one. `batch_records` are rows of all tables of a batch, `batch_names` its names.
    `names` and `names_nbytes` are of a rank, all batches together.
    """

    message_nbytes: int = 16 * 1024**2
    batch_records: int = 65_536
    batch_names: int = 65_536
    names: int = 2**20
    name_nbytes: int = 65_536  # mangled names of real kernels have more than 10,000
    names_nbytes: int = 64 * 1024**2
    notes: int = 64
    note_chars: int = 1024
    reasons: int = 64
    reason_chars: int = 64
    job_chars: int = 128
    collector_chars: int = 64
    host_chars: int = 256
    format_chars: int = 64
    source_chars: int = 4096
    rank: int = 999_999
    clock_offset_ns: int = 24 * 3600 * 10**9


LIMITS = WireLimits()
# What any configuration may take: for messages that were checked once already, perhaps against other limits.
WIDEST = WireLimits(
    message_nbytes=64 << 20, batch_records=1 << 20, names=1 << 24, name_nbytes=1 << 20, names_nbytes=4 << 30
)
