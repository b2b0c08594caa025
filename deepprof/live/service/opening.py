"""Opening the store of a daemon: journal and history that match, locked for this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.live.service.config import find_store
from deepprof.live.service.folder import lock_store, prepare_folder
from deepprof.live.service.history import History
from deepprof.live.service.journal import Journal

if TYPE_CHECKING:
    from deepprof.live.service.clock import DaemonClock
    from deepprof.live.service.config import Config

__all__ = ["OpenStore", "opened_store"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenStore:
    """The parts of a store."""

    folder: Path
    journal: Journal
    history: History


@contextmanager
def opened_store(config: Config, clock: DaemonClock) -> Iterator[OpenStore]:
    """Give the store that the configuration names, created if it is missing. Raises `StoreError` and `OSError`."""
    folder = find_store(config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    prepare_folder(folder)
    with lock_store(folder):
        history = History.open(folder, clock=clock.unix_ns)
        try:
            journal = open_journal(folder, config, history)
            try:
                yield OpenStore(folder, journal, history)
            finally:
                journal.close()
        finally:
            history.close()


def open_journal(folder: Path, config: Config, history: History) -> Journal:
    """Return the journal, which never assigns a position that the history has noted already."""
    sizes = config.journal
    journal = Journal.open(
        folder / "journal",
        segment_nbytes=sizes.segment_nbytes,
        total_nbytes=sizes.total_nbytes,
        beyond=history.farthest,
    )
    if journal.repaired or journal.damaged:
        log.warning("journal-repaired", extra={"cut_nbytes": journal.repaired, "damaged": journal.damaged})
    return journal
