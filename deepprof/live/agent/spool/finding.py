"""Finds the spools of a former agent that was killed, or whose daemon was away when the job ended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from deepprof.live.agent.spool.budget import SpoolBudget
from deepprof.live.agent.spool.spool import Spool
from deepprof.live.agent.spool.spool_folder import DAMAGED, SpoolError, SpoolFolder, is_spool_name

__all__ = ["find_spools"]

BEGUN = {"hello.new"}  # the only file of a spool whose maker was killed meanwhile


def find_spools(root: Path, budget: SpoolBudget) -> list[Spool]:
    """Return the spools under `root` that no process holds, recovered, oldest first; none if `root` is missing.

    A spool that does not state whose records it keeps gets a name that ends in `.damaged`, and is left alone.
    """
    try:
        entries = [entry for entry in os.scandir(root) if is_spool_name(entry.name)]
        ages = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in entries]
    except OSError:
        return []
    found = [load(root / name, budget) for _, name in sorted(ages)]
    return [spool for spool in found if spool is not None]


def load(path: Path, budget: SpoolBudget) -> Spool | None:
    """Return a spool, None if it is held or there is none."""
    try:
        folder = SpoolFolder(path)
    except SpoolError:  # held, or no folder
        return None
    if set(os.listdir(folder.file)) <= BEGUN:
        folder.remove()
        folder.close()
        return None
    try:
        return Spool.load(folder, budget, None)
    except SpoolError:
        with suppress(OSError):
            path.rename(path.with_name(path.name + DAMAGED))
        return None
