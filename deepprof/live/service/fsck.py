"""Checking a store, and repairing it on request: the journal comes first, because the history must agree with it."""

from __future__ import annotations

import os
from pathlib import Path

from deepprof.collectors.errors import DeepProfError, UsageError
from deepprof.collectors.store import open_store
from deepprof.live.service.folder import CAPTURES_LIST, StoreError, lock_store, require_kind
from deepprof.live.service.history.history_checks import inspect_history
from deepprof.live.service.history.schema import DATABASE
from deepprof.live.service.history.sealed import SEALED
from deepprof.live.service.journal.journal_checks import inspect_journal
from deepprof.live.service.store_problem import FsckContext, StoreProblem

JOURNAL, CAPTURES = "journal", "captures"


def check_store(store: Path, *, repair: bool = False) -> list[StoreProblem]:
    """Return every problem of the store in the directory `store`; with `repair` they are repaired, and still returned.

    A repair moves the parts that it needs out to `lost+found` in the store. Raises `UsageError` where there is no
    store, `StoreError` where a daemon runs on it or it is of a newer version, and `OSError`.
    """
    _require_store(store)
    with lock_store(store):
        bench = FsckContext(store, repair=repair)
        facts = inspect_journal(bench, store / JOURNAL)
        inspect_history(bench, facts.end, facts.highest_session)
        _inspect_captures(bench, store / CAPTURES)
        return bench.problems


def _require_store(store: Path) -> None:
    """Raise `UsageError` unless the directory contains a part of a daemon's store."""
    if not store.is_dir():
        raise UsageError(f"{store}: is no directory; name the store of `deepprof serve`")
    if not os.access(store, os.R_OK | os.X_OK):
        raise UsageError(f"{store}: may not be read by you; run it as the daemon's user")
    if not any(os.path.lexists(store / name) for name in (JOURNAL, DATABASE, SEALED)):
        raise UsageError(f"{store}: is no store of a daemon; name the one of `deepprof serve`")


def _inspect_captures(bench: FsckContext, folder: Path) -> None:
    """Check that each capture is a store of traces, as far as its manifests show."""
    try:
        if not require_kind(folder, folder=True):
            return
    except StoreError as error:
        bench.report(folder, error.problem, "the captures")
        bench.put_aside(folder)
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        if entry.name in (CAPTURES_LIST, f".{CAPTURES_LIST}.part") and entry.is_file(follow_symlinks=False):
            continue
        try:
            if not entry.is_dir(follow_symlinks=False):
                raise StoreError(path, "is no directory, as every capture is")
            open_store(path)
        except DeepProfError as error:
            bench.report(path, f"is no sound capture: {getattr(error, 'problem', error)}", "the capture")
            bench.put_aside(path)
