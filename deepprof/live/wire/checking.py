"""The entry checks of the daemon: every message is checked here before anything is done with it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.live.wire.declarations import encode, find_figures
from deepprof.live.wire.decoding import Pieces, decode_table, measure_table
from deepprof.live.wire.errors import MalformedArrowError, WireError
from deepprof.live.wire.figures import CollectorStatus
from deepprof.live.wire.limits import (
    COUNT_LIMIT,
    LIMITS,
    MESSAGE_RECORDS,
    STATUS_NBYTES,
    WireLimits,
)
from deepprof.live.wire.records import TABLE_OF, CheckedRecords
from deepprof.live.wire.sent_tables import SENT_RECORDS
from deepprof.live.wire.values import check_values
from deepprof.render.plain import printable, shorten
from deepprof.v1 import records_pb2 as pb

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:/-]*[A-Za-z0-9])?")
CLOCKS = (pb.CLOCK_UNIX, pb.CLOCK_SESSION)
LEVELS = (pb.COLLECTOR_LEVEL_FULL, pb.COLLECTOR_LEVEL_DUTY, pb.COLLECTOR_LEVEL_OFF)
STATUS_LIMITS: Mapping[str, int | float] = {
    name: each.most for name, each in find_figures(CollectorStatus).items() if each.most is not None
}


def check_hello(message: pb.Hello, limits: WireLimits) -> None:
    """Raise `WireError` unless the message describes its sender with valid values."""
    check_name("job", message.job, limits.job_chars)
    check_name("collector", message.collector, limits.collector_chars)
    _within("rank", message.rank, 0, limits.rank)
    _within("world_size", message.world_size, 0, limits.rank + 1)
    if message.world_size and message.rank >= message.world_size:
        raise WireError("rank", f"{message.rank} of a job of {message.world_size}")
    if message.clock not in CLOCKS:
        raise WireError("clock", f"{message.clock} is no clock")
    _within("epoch_unix_ns", message.epoch_unix_ns, -TIME_LIMIT_NS, TIME_LIMIT_NS)
    _within("clock_offset_ns", message.clock_offset_ns, -limits.clock_offset_ns, limits.clock_offset_ns)
    _check_word("host", message.host, limits.host_chars)
    _check_word("format", message.format, limits.format_chars)
    _check_length("source", message.source, limits.source_chars)
    _within("the number of notes", len(message.notes), 0, limits.notes)
    for number, note in enumerate(message.notes):
        _check_length(f"notes[{number}]", note, limits.note_chars)


def check_gap(message: pb.Gap, limits: WireLimits) -> None:
    """Raise `WireError` unless the message's numbers and its reason are possible."""
    _within("first", message.first, 0, COUNT_LIMIT)
    _within("lost", message.lost, 0, min(MESSAGE_RECORDS, COUNT_LIMIT - message.first))
    _check_word("reason", message.reason, limits.reason_chars)


def check_end(message: pb.End, limits: WireLimits) -> None:
    """Raise `WireError` unless the message's counts and their reasons are possible."""
    for field, counts in (("dropped", message.dropped), ("flagged", message.flagged)):
        _within(f"the number of reasons in {field}", len(counts), 0, limits.reasons)
        for reason in counts:
            _check_word(f"a reason in {field}", reason, limits.reason_chars)
        _within(f"the sum of {field}", sum(counts.values()), 0, COUNT_LIMIT)


def check_status(message: pb.Status) -> None:
    """Raise `WireError` unless the message states a possible state of a collector."""
    _within("the status", message.ByteSize(), 0, STATUS_NBYTES, "bytes")
    if message.level not in LEVELS:
        raise WireError("level", f"{message.level} is no level")
    for field, most in STATUS_LIMITS.items():
        value = getattr(message, field)
        if isinstance(value, str):
            _check_word(field, value, int(most))
        elif isinstance(value, int):
            _within(field, value, 0, int(most))
        elif not (math.isfinite(value) and 0 <= value <= most):
            raise WireError(field, f"{value} is not between 0 and {most:g}")


def encode_status(status: CollectorStatus) -> pb.Status:
    """Return the message, its values limited to what `check_status` accepts: a wrong one would end the stream."""
    limited = {name: _limit(getattr(status, name), most) for name, most in STATUS_LIMITS.items()}
    return encode(pb.Status, status, **limited)


def _limit(value: str | float, most: float) -> str | float:
    """Return a text of at most `most` printable characters, or a number from 0 to `most`; 0 for NaN and infinities."""
    if isinstance(value, str):
        return shorten(printable(value), int(most))
    if isinstance(value, float) and not math.isfinite(value):
        return 0.0
    return min(max(value, 0), most)


def check_batch(message: pb.Batch, limits: WireLimits, names_known: int, names_nbytes: int = 0) -> CheckedRecords:
    """Return the records of a batch; raises `WireError` unless everything in it is possible.

    `names_known` is the number of names that the rank has sent before, `names_nbytes` their bytes. Only the session can
    check whether names that are sent again are the same, and whether record numbers and watermarks continue the earlier
    ones. Takes a small multiple of the message's size in memory, whatever the message claims.
    """
    _within("the message", message.ByteSize(), 0, limits.message_nbytes, "bytes")
    _within("first", message.first, 0, COUNT_LIMIT - limits.batch_records)
    _within("complete_until_ns", message.complete_until_ns, -TIME_LIMIT_NS, TIME_LIMIT_NS)
    names = _check_names(message, limits, names_known, names_nbytes)
    known = max(names_known, message.first_name + len(names))
    measured = _measure_tables(message.tables, limits)
    places = {table: f"tables[{number}]" for number, table in enumerate(measured)}
    tables = {}
    for table, pieces in measured.items():
        try:
            rows = decode_table(table, pieces)
        except MalformedArrowError as error:
            raise WireError(f"{places[table]}.arrow", str(error)) from error
        if rows.height:
            tables[table] = rows
    for table in tables:
        check_values(places[table], table, tables, known)
    count = sum(tables[table].height for table in SENT_RECORDS if table in tables)
    return CheckedRecords(message.first, count, tables, names, message.first_name, message.complete_until_ns)


def count_records(message: pb.Batch, limits: WireLimits = LIMITS) -> int:
    """Return the number of records in a refused batch, as far as its bytes can be read; never raises.

    The number is at most `batch_records` of `limits`.
    """
    count = 0
    for part in message.tables:
        table = TABLE_OF.get(part.kind)
        if table in SENT_RECORDS:
            try:
                count += sum(piece.rows for piece in measure_table(table, part.arrow)[1])
            except MalformedArrowError:
                continue
    return min(count, limits.batch_records)


def _measure_tables(parts: Iterable[pb.Table], limits: WireLimits) -> Mapping[str, Pieces]:
    """Return the measured tables of a batch by name, in their order; raises `WireError`. Nothing is decoded yet."""
    measured: dict[str, Pieces] = {}
    rows = nbytes = 0
    for number, part in enumerate(parts):
        table = TABLE_OF.get(part.kind)
        if table is None or table in measured:
            raise WireError(f"tables[{number}].kind", f"{part.kind} comes twice" if table else f"{part.kind} is none")
        try:
            measured[table] = measure_table(table, part.arrow)
        except MalformedArrowError as error:
            raise WireError(f"tables[{number}].arrow", str(error)) from error
        rows += sum(piece.rows for piece in measured[table][1])
        nbytes += sum(piece.text_nbytes for piece in measured[table][1])
        _within(f"the rows up to tables[{number}]", rows, 0, limits.batch_records)
        _within(f"the texts up to tables[{number}]", nbytes, 0, limits.message_nbytes, "bytes")
    return measured


def _check_names(message: pb.Batch, limits: WireLimits, known: int, nbytes: int) -> tuple[str, ...]:
    """Return the batch's names, which continue the `known` ones or repeat some; raises `WireError`."""
    _within("first_name", message.first_name, 0, known)
    _within("the number of names", len(message.names), 0, limits.batch_names)
    _within("the number of the rank's names", message.first_name + len(message.names), 0, limits.names)
    names = tuple(message.names)
    sizes = [len(name.encode()) for name in names]
    longest = max(sizes, default=0)
    _within("a name", longest, 0, limits.name_nbytes, "bytes")
    new = sum(sizes[known - message.first_name :])
    _within("the rank's names", nbytes + new, 0, limits.names_nbytes, "bytes")
    return names


def _within(field: str, number: int, least: int, most: int, unit: str = "") -> None:
    """Raise `WireError` unless `least` ≤ `number` ≤ `most`."""
    if not least <= number <= most:
        bound = f"at least {least}" if number < least else f"at most {most}"
        raise WireError(field, f"{number} {unit}".strip() + f", {bound}")


def check_name(field: str, text: str, chars: int) -> None:
    """Raise `WireError` unless `text` is a valid name: names are looked up, shown, and put into labels."""
    if not (len(text) <= chars and NAME.fullmatch(text)):
        raise WireError(field, f"{text[:40]!r} is not 1 to {chars} letters, digits, and -_.:/ between them")


def _check_word(field: str, text: str, chars: int) -> None:
    """Raise `WireError` unless `text` is short and can be printed."""
    _check_length(field, text, chars)
    if not text.isprintable():
        raise WireError(field, f"{text[:40]!r} cannot be printed")


def _check_length(field: str, text: str, chars: int) -> None:
    """Raise `WireError` for a text of more than `chars` characters."""
    _within(field, len(text), 0, chars, "characters")
