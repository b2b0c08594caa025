"""How much one message, and all messages of one rank together, may hold."""

from __future__ import annotations

from dataclasses import dataclass

COUNT_LIMIT = 2**62  # of records and their numbers: sums of two stay inside int64
MESSAGE_RECORDS = 2**32 - 1  # most records of one message: the greatest count that a frame of the journal can hold
STATUS_NBYTES = 4096
REASON_CHARS = 64
NOTICE_CHARS = 256
OVERHEAD_LIMIT = 1024.0  # cores: more than any training host has


@dataclass(frozen=True, slots=True)
class WireLimits:
    """The limits of what the daemon accepts; the defaults are those in the comments of `records.proto`.

    `rank` is the highest rank number. `batch_records` limits the rows of all tables of a batch, `batch_names` the names
    of a batch. `names` and `names_nbytes` limit the names of a rank over all batches.
    """

    message_nbytes: int = 16 * 1024**2
    batch_records: int = 65_536
    batch_names: int = 65_536
    names: int = 2**20
    name_nbytes: int = 65_536  # mangled names of real kernels have more than 10,000 bytes
    names_nbytes: int = 64 * 1024**2
    notes: int = 64
    note_chars: int = 1024
    reasons: int = 64
    reason_chars: int = REASON_CHARS
    job_chars: int = 128
    collector_chars: int = 64
    host_chars: int = 256
    format_chars: int = 64
    source_chars: int = 4096
    rank: int = 999_999
    clock_offset_ns: int = 24 * 3600 * 10**9


LIMITS = WireLimits()
# The highest limits of any configuration: for messages that were checked already, perhaps against other limits.
WIDEST = WireLimits(
    message_nbytes=64 << 20, batch_records=1 << 20, names=1 << 24, name_nbytes=1 << 20, names_nbytes=4 << 30
)
