"""The problems of a store, one line each, and the folder for the parts that a repair takes out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deepprof.collectors.errors import escaped
from deepprof.live.service.folder import make_folder, sync_folder

LOST = "lost+found"
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """A problem, its place, and what is lost by it: `nothing` where all of it still exists or can be made again."""

    where: str
    what: str
    lost: str = NOTHING

    def __str__(self) -> str:
        return escaped(f"{self.where}: {self.what}; lost: {self.lost}")


class FsckContext:
    """The store under inspection: collects problems, and with `repair` puts damaged parts aside."""

    def __init__(self, store: Path, *, repair: bool) -> None:
        self.store, self.repair = store, repair
        self.problems: list[StoreProblem] = []

    def report(self, path: Path, what: str, lost: str = NOTHING) -> None:
        """Note a problem with a path in the store."""
        where = os.path.relpath(path, self.store)
        self.problems.append(StoreProblem(where, what, lost))

    def put_aside(self, path: Path) -> None:
        """Move a file, link or directory to `lost+found`, when repairing; a link is moved, never followed."""
        if self.repair:
            target = self.free_name(path.name)
            path.rename(target)
            sync_folder(target.parent)
            sync_folder(path.parent)

    def keep(self, name: str, content: bytes) -> None:
        """Write the bytes that a repair replaces to `lost+found`, when repairing."""
        if self.repair:
            with self.free_name(name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

    def free_name(self, name: str) -> Path:
        """Return a path in `lost+found` that does not exist yet."""
        folder = self.store / LOST
        make_folder(folder)  # without a check of the owner: root may repair the store of the daemon's user
        number, path = 0, folder / name
        while os.path.lexists(path):
            number += 1
            path = folder / f"{name}.{number}"
        return path
