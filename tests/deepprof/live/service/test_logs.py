"""Log lines: one per event, whatever the texts in them hold; repeated ones are counted, not written."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.config.sections import LogSection
from deepprof.live.service.log_rate import BURST, MAX_LOGGED_EVENTS, WINDOW_S, LogRateLimiter
from deepprof.live.service.logs import STANDARD, quiet_grpc, writing_logs

log = logging.getLogger("deepprof.live.service.tests")


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Captured(list[dict[str, Any]]):
    clock: Clock


@contextmanager
def captured(level: Any = "info") -> Iterator[Captured]:
    """Yield the JSON lines, which are there after the block."""
    stream, lines = io.StringIO(), Captured()
    lines.clock = Clock()
    with writing_logs(LogSection(level=level, format="json"), stream, lines.clock):
        yield lines
    lines += [json.loads(line) for line in stream.getvalue().splitlines()]


def text_of(event: str, stream: io.StringIO | None = None, **fields: object) -> str:
    out = stream or io.StringIO()
    with writing_logs(LogSection(format="auto" if stream else "text"), out):
        log.info(event, extra=fields)
    return out.getvalue()


def test_a_json_line_has_time_level_event_and_fields() -> None:
    with captured() as lines:
        log.warning("rank-began", extra={"job": "a", "rank": 3, "share": 0.5, "ended": False, "host": None})
    (line,) = lines
    assert line.pop("time").endswith("Z")
    fields = {"job": "a", "rank": 3, "share": 0.5, "ended": False, "host": None}
    assert line == {"level": "warning", "event": "rank-began"} | fields


def test_text_lines() -> None:
    line = text_of("rank-began", job="a b", rank=3, host="x", empty="", quoted='a"b')
    assert line.split("Z ", 1)[1] == 'info rank-began job="a b" rank=3 host=x empty="" quoted="a\\"b"\n'


def test_a_terminal_gets_text_and_a_pipe_json() -> None:
    assert text_of("began", Terminal()).endswith(" info began\n")
    assert json.loads(text_of("began", io.StringIO()))["event"] == "began"


def test_levels() -> None:
    with captured("warning") as lines:
        log.info("quiet")
        log.warning("loud")
        logging.getLogger("library").warning("loud")
    assert [line["event"] for line in lines] == ["loud", "foreign"]


def test_what_libraries_say_comes_the_same_way() -> None:
    with captured() as lines:
        logging.getLogger("library.part").warning("lost %d of %s", 3, "all")
        logging.getLogger("library.part").info("chatter")
        logging.getLogger("library.part").error("a wrong %d format", "x")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert [line["logger"] for line in lines] == ["library.part", "library.part", "py.warnings"]
    assert {line["event"] for line in lines} == {"foreign"}
    assert [line["message"][:17] for line in lines[:2]] == ["lost 3 of all", "a wrong %d format"]
    assert "old" in lines[2]["message"]


def test_debug_hears_libraries_too() -> None:
    with captured("debug") as lines:
        logging.getLogger("library").debug("chatter")
    assert lines[0]["message"] == "chatter"


def test_an_exception_is_one_line() -> None:
    with captured() as lines:
        try:
            raise RuntimeError("broken\nin two")
        except RuntimeError:
            log.exception("failed")
    (line,) = lines
    assert "RuntimeError: broken\nin two" in line["traceback"]


def test_a_thread_that_dies_is_heard() -> None:
    before = threading.excepthook
    with captured() as lines:
        thread = threading.Thread(target=int, args=("x",), name="writer")
        thread.start()
        thread.join()
    assert threading.excepthook is before
    assert (lines[0]["event"], lines[0]["thread_name"]) == ("thread-failed", "writer")
    assert "ValueError" in lines[0]["traceback"]


class Refusing:
    def __str__(self) -> str:
        raise RuntimeError


def test_values_are_bounded() -> None:
    with captured() as lines:
        many = {f"f{number}": number for number in range(100)}
        log.info("long", extra={"text": "x" * 10_000})
        log.info("many", extra=many)
        log.info("odd", extra={"huge": 1 << 70, "nan": float("nan"), "refusing": Refusing(), "bytes": b"\0"})
    assert len(lines[0]["text"]) <= 1000
    assert len(lines[1]) == 3 + 32
    assert lines[2]["huge"] == str(1 << 70)
    assert lines[2]["nan"] == "nan"
    assert lines[2]["refusing"] == "Refusing"
    assert lines[2]["bytes"] == "b'\\x00'"


@given(st.text(), st.text().filter(lambda key: key not in STANDARD))
def test_any_text_is_one_line_of_printable_ascii_or_text(text: str, key: str) -> None:
    for style in ("json", "text"):
        stream = io.StringIO()
        with writing_logs(LogSection(format=style), stream):  # type: ignore[arg-type]
            log.info("said", extra={key: text})
        line = stream.getvalue()
        assert line.endswith("\n")
        assert line[:-1].isprintable()
        if style == "json":
            assert line.isascii()
            assert len(text) > 400 or text in json.loads(line).values() or key in {"time", "level", "event"}


def test_a_stream_that_is_gone_or_full_is_nobodys_error(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with writing_logs(LogSection(), stream):
        stream.close()
        log.info("unheard")
        for _ in range(2 * BURST):
            log.info("unheard")
    assert capsys.readouterr() == ("", "")


def test_logging_is_as_before_afterwards() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("deepprof").level, warnings.showwarning
    with pytest.raises(KeyError), captured():
        raise KeyError
    assert (root.handlers, root.level, logging.getLogger("deepprof").level, warnings.showwarning) == before


def test_without_a_stream_it_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with writing_logs(LogSection(format="json")):
        log.info("here")
    out, err = capsys.readouterr()
    assert (out, json.loads(err)["event"]) == ("", "here")
    assert sys.stderr is not None


def test_grpc_keeps_its_own_lines_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, wanted in ((None, "NONE"), ("debug", "debug")):
        monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
        if told:
            monkeypatch.setenv("GRPC_VERBOSITY", told)
        quiet_grpc()
        assert os.environ["GRPC_VERBOSITY"] == wanted
    monkeypatch.setenv("GRPC_VERBOSITY", "")


def test_repeated_events_are_counted() -> None:
    with captured() as lines:
        for _ in range(BURST + 5):
            log.info("again")
        log.info("other")
        lines.clock.now = WINDOW_S
        log.info("again")
    assert [line["event"] for line in lines] == ["again"] * BURST + ["other", "again"]
    assert lines[-1]["suppressed"] == 5
    assert not any("suppressed" in line for line in lines[:-1])


def test_what_was_left_out_is_said_although_it_never_comes_again() -> None:
    with captured() as lines:
        for _ in range(BURST + 5):
            log.info("again")
        lines.clock.now = WINDOW_S
        log.info("other")
        for _ in range(BURST + 2):
            log.info("last")
    told = [line for line in lines if line["event"] == "repeated"]
    assert [(line["of"], line["suppressed"]) for line in told] == [("again", 5), ("last", 2)]


def test_debug_messages_are_all_wanted() -> None:
    with captured("debug") as lines:
        for _ in range(3 * BURST):
            log.debug("again")
    assert len(lines) == 3 * BURST


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100))))
def test_nothing_is_lost_count_of(events: list[tuple[int, float]]) -> None:
    clock = Clock()
    repeats = LogRateLimiter(clock)
    said = unsaid = 0
    for key, pause in events:
        clock.now += pause
        suppressed = repeats.admit(str(key), logging.INFO)
        unsaid += sum(repeats.expired().values()) + (suppressed or 0)
        said += suppressed is not None
    assert said + unsaid + sum(repeats.drain().values()) == len(events)
    assert repeats.drain() == {}


def test_events_that_are_told_apart_are_bounded() -> None:
    repeats = LogRateLimiter(Clock())
    for number in range(3 * MAX_LOGGED_EVENTS):
        for _ in range(BURST + 1):
            repeats.admit(str(number), logging.INFO)
    assert len(repeats._windows) == MAX_LOGGED_EVENTS
    assert sum(repeats.drain().values()) == 3 * MAX_LOGGED_EVENTS
