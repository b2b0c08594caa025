"""The daemon's log on stderr: one line per event, JSON for machines or text for a terminal.

Code logs with the standard library: ``log.info("rank-began", extra={"job": job, "rank": rank})``. The message of
DeepProf's own loggers is the event, a constant word; its fields vary. Logs and warnings of other libraries become the
event `foreign` with their message as a field. Texts may come from any client that sends records: they are escaped and
cut.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from deepprof.collectors.errors import escaped
from deepprof.live.service.config.sections import LogSection
from deepprof.live.service.log_rate import LogRateLimiter
from deepprof.render.plain import shorten

OURS = "deepprof"
FIELDS, FIELD_CHARS, TRACEBACK_CHARS = 32, 1000, 8000
WIDEST = 1 << 63  # larger integers are written as texts: readers of JSON keep 64 bits at most
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def writing_logs(
    config: LogSection, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[_LogHandler]:
    """Write logs, warnings, and exceptions that end threads to `stream` (stderr), until the block ends.

    `clock` (seconds) is used only to limit repeated events.
    """
    quiet_grpc()
    out = sys.stderr if stream is None else stream
    handler = _LogHandler(out, _make_lines(config, out), LogRateLimiter(clock))
    with _as_only_handler(handler, config.level), _threads_heard():
        try:
            yield handler
        finally:
            handler.finish()


def quiet_grpc() -> None:
    """Keep grpc's C library from writing a line to stderr per refused call. Call it before grpc is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _make_lines(config: LogSection, stream: TextIO) -> logging.Formatter:
    text = config.format == "text" or (config.format == "auto" and stream.isatty())
    return _TextLines() if text else _JsonLines()


@contextmanager
def _as_only_handler(handler: logging.Handler, level: str) -> Iterator[None]:
    """Give every record to `handler`: ours from `level` on, those of libraries from warnings on (debug: all)."""
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = root.handlers[:], root.level, ours.level
    root.handlers[:] = [handler]
    ours.setLevel(level.upper())
    root.setLevel(logging.DEBUG if level == "debug" else max(logging.WARNING, ours.level))
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


@contextmanager
def _threads_heard() -> Iterator[None]:
    """Log an exception that ends a thread, which otherwise prints a traceback of many lines."""
    before = threading.excepthook

    def hear(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else ""
        problem = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
        logging.getLogger(OURS).error("thread-failed", exc_info=problem, extra={"thread_name": name})

    threading.excepthook = hear
    try:
        yield
    finally:
        threading.excepthook = before


class _LogHandler(logging.Handler):
    """Writes records as lines, of repeated ones only some; a stream that is closed or full causes no error."""

    def __init__(self, stream: TextIO, lines: logging.Formatter, repeats: LogRateLimiter) -> None:
        super().__init__()
        self.stream, self.repeats = stream, repeats
        self.setFormatter(lines)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, and before it the counts of earlier ones that were left out."""
        try:
            suppressed = self.repeats.admit(_key_of(record), record.levelno)
            self.tell(self.repeats.expired())
            if suppressed is not None:
                self.write(record, suppressed)
        except (OSError, ValueError):
            return

    def finish(self) -> None:
        """Write the counts left over."""
        self.acquire()
        try:
            self.tell(self.repeats.drain())
        except (OSError, ValueError):
            return
        finally:
            self.release()

    def tell(self, unsaid: Mapping[str, int]) -> None:
        """Write how often each event was left out."""
        for event, suppressed in unsaid.items():
            told = {"name": OURS, "levelno": logging.INFO, "levelname": "INFO", "msg": "repeated", "of": event}
            self.write(logging.makeLogRecord(told), suppressed)

    def write(self, record: logging.LogRecord, suppressed: int) -> None:
        """Write one whole line."""
        if suppressed:
            record.suppressed = suppressed
        self.stream.write(self.format(record) + "\n")
        self.stream.flush()


class _JsonLines(logging.Formatter):
    """A record as one line of JSON, all ASCII: `time` (UTC), `level`, `event`, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        values = head(record) | _fields(record) | head(record)  # a field never takes the place of the event
        line = json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        return line.replace("\x7f", "\\u007f")  # JSON does not escape it, but a terminal interprets it


class _TextLines(logging.Formatter):
    """A record as one line of text: time, level, event, then the fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        words = [*head(record).values(), *(f"{key}={_show(value)}" for key, value in _fields(record).items())]
        return escaped(" ".join(words))


def head(record: logging.LogRecord) -> dict[str, str]:
    """Return the values that every line begins with."""
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {"time": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "event": _event_of(record)}


def _event_of(record: logging.LogRecord) -> str:
    """Return the event's word; `foreign` for records of other libraries."""
    return shorten(_say(record), FIELD_CHARS) if _is_ours(record) else "foreign"


def _key_of(record: logging.LogRecord) -> str:
    """Return a key that repeated records share: the event and its token, or the line of the foreign code that logs."""
    if not _is_ours(record):
        return f"{record.name}:{record.module}:{record.lineno}"
    token = getattr(record, "token", "")  # many refusals of one sender must not hide those of others
    return f"{_event_of(record)} {token}" if token else _event_of(record)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == OURS


def _say(record: logging.LogRecord) -> str:
    """Return the record's message, whatever its arguments are."""
    try:
        return record.getMessage()
    except Exception:  # a wrong format string of a library must not end the daemon
        return str(record.msg)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in STANDARD}
    found = {shorten(escaped(key)): _bound(value) for key, value in list(own.items())[:FIELDS]}
    if not _is_ours(record):
        found |= {"logger": shorten(record.name), "message": shorten(_say(record), FIELD_CHARS)}
    if record.exc_info and record.exc_info[0] is not None:
        found["traceback"] = "".join(traceback.format_exception(*record.exc_info))[-TRACEBACK_CHARS:]
    return found


def _bound(value: object) -> Any:
    """Return the value as one that JSON can hold and that is not long."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < WIDEST:
        return value
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    return shorten(_describe(value), FIELD_CHARS)


def _describe(value: object) -> str:
    """Return a value as text, even if its `__str__` raises."""
    try:
        return str(value)
    except Exception:  # a log line must not end the daemon
        return type(value).__name__


def _show(value: object) -> str:
    """Return a field's value for a text line: in quotes where it would otherwise look like several."""
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(" \"'=") else json.dumps(text)
