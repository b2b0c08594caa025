"""What everything depends on: its first failure is kept, told once, and shown to those who ask whether all lives."""

from __future__ import annotations

import asyncio
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.live.process.supervision import FirstFailure, ProcessFailedError
from deepprof.live.service.exporter import DaemonSnapshot, Exporter, ExporterSettings
from tests.patience import PATIENCE_S


def fail(error: BaseException) -> Callable[[], None]:
    """Return what raises an error."""

    def work() -> None:
        raise error

    return work


def test_the_first_failure_is_kept_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []
    vitals = FirstFailure(failed=lambda: told.append(1))
    vitals.check("the daemon")
    vitals.guard("a thread", fail(ZeroDivisionError("first")))()
    vitals.guard("another", fail(KeyError("second")))()
    assert vitals.problem == "a thread has met a bug (ZeroDivisionError: first)"
    assert told == [1]
    assert [record.getMessage() for record in caplog.records] == ["part-failed"] * 2  # both are in the log
    assert all(record.levelno == logging.CRITICAL and record.exc_info for record in caplog.records)


def test_what_a_thread_meets_is_heard_of() -> None:
    heard = threading.Event()
    vitals = FirstFailure(failed=heard.set)
    thread = threading.Thread(target=vitals.guard("a thread", fail(SystemExit("even that"))))
    thread.start()
    thread.join(PATIENCE_S)
    assert heard.is_set()
    with pytest.raises(ProcessFailedError, match=r"^the agent has ended: a thread has met a bug .*; start it again"):
        vitals.check("the agent")


def test_what_goes_well_is_no_failure() -> None:
    vitals = FirstFailure(failed=lambda: pytest.fail("nothing has failed"))
    done: list[int] = []
    vitals.guard("a thread", done.append)(7)
    assert done == [7]
    vitals.check("the daemon")


@pytest.mark.parametrize("error", [UsageError("mend it"), OSError("the disk")])
def test_a_watched_task_raises_what_people_can_mend(error: Exception) -> None:
    vitals = FirstFailure()
    with pytest.raises(type(error)):
        asyncio.run(vitals.watch("a task", asyncio.to_thread(fail(error))))
    assert not vitals.problem


def test_a_watched_task_that_meets_a_bug_fails_the_process() -> None:
    vitals = FirstFailure()
    asyncio.run(vitals.watch("a task", asyncio.to_thread(fail(ZeroDivisionError("a bug")))))
    assert vitals.problem == "a task has met a bug (ZeroDivisionError: a bug)"


def test_a_reason_is_one_short_line() -> None:
    vitals = FirstFailure()
    vitals.guard("a thread", fail(ValueError("x\n\x1b[31m" * 1000)))()
    text = str(ProcessFailedError("the daemon", vitals.problem))
    assert len(text) < 500
    assert text.isprintable()


def ask(port: int, page: str) -> tuple[int, str]:
    """Return status and body of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_liveness_is_false_with_the_reason_from_a_failure_on() -> None:
    vitals = FirstFailure()
    exporter = Exporter(
        ("127.0.0.1", 0), lambda: DaemonSnapshot(now_unix_ns=1), settings=ExporterSettings(vitals=vitals)
    )
    try:
        assert ask(exporter.address[1], "/healthz") == (200, "alive\n")
        vitals.fail("the thread that mines", ZeroDivisionError("a bug"))
        reason = "the thread that mines has met a bug (ZeroDivisionError: a bug)\n"
        assert ask(exporter.address[1], "/healthz") == (503, reason)
    finally:
        exporter.close()
