"""The captures, which are raw windows that were kept: their list, and which are removed when there are too many."""

from __future__ import annotations

import logging
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from deepprof.live.service.folder import CAPTURES_LIST as LIST
from deepprof.live.service.folder import prepare_folder
from deepprof.v1 import query_pb2 as wire

log = logging.getLogger(__name__)

NAME = re.compile(r"\d+-\d+")


class KeptCapture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One capture: a folder named `name`, which `deepprof diagnose` reads."""

    name: str
    job: str
    rank: int
    reason: str
    taken_unix_ns: int
    nbytes: int


@dataclass(slots=True)
class Captures:
    """The captures in a folder, oldest first; at most `most` of them, and at most `most_nbytes` bytes."""

    folder: Path
    most: int
    most_nbytes: int
    kept: list[KeptCapture] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path, most: int, most_nbytes: int) -> Captures:
        """Return the captures in `folder`; captures that are not listed are removed, other folders stay unchanged.

        Raises `StoreError` and `OSError`.
        """
        prepare_folder(folder)
        captures = cls(folder, most, most_nbytes)
        try:
            captures.kept = [kept for kept in _read_list(folder / LIST) if captures.has(kept.name)]
            captures._remove_unlisted()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("captures-unlisted", extra={"problem": str(error)[:200]})
        for part in folder.glob(".*.part"):
            shutil.rmtree(part, ignore_errors=True)
        return captures

    def has(self, name: str) -> bool:
        """Return whether there is a capture of this name."""
        return NAME.fullmatch(name) is not None and (self.folder / name).is_dir()

    def _remove_unlisted(self) -> None:
        """Remove captures that a killed daemon had written but not yet listed."""
        known = {kept.name for kept in self.kept}
        for path in self.folder.iterdir():
            if self.has(path.name) and path.name not in known:
                self.discard(path.name)

    def name(self, unix_ns: int) -> str:
        """Return an unused name for a new capture."""
        names = {kept.name for kept in self.kept}
        return next(name for i in range(len(names) + 1) if (name := f"{unix_ns}-{i}") not in names)

    def add(self, kept: KeptCapture) -> None:
        """Add a capture that was written, and remove the oldest ones where there are too many.

        Raises `ValueError` for a capture that alone is too large, and `OSError`; in both cases it is removed.
        """
        after = [*self.kept, kept]
        while len(after) > self.most or sum(one.nbytes for one in after) > self.most_nbytes:
            after.pop(0)
        try:
            if not after or kept.nbytes > self.most_nbytes:
                raise ValueError(f"it has {kept.nbytes:,} bytes; raise captures.nbytes")
            self._write(after)
        except (OSError, ValueError):
            self.discard(kept.name)
            raise
        self._keep(after)

    def forget(self, job: str) -> None:
        """Remove the captures of a job. Raises `OSError`."""
        after = [one for one in self.kept if one.job != job]
        if len(after) < len(self.kept):
            self._write(after)
            self._keep(after)

    def discard(self, name: str) -> None:
        """Remove the folder of a capture."""
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def measure(self, name: str) -> int:
        """Return how many bytes a capture takes."""
        return sum(file.stat().st_size for file in (self.folder / name).rglob("*") if file.is_file())

    def listed(self) -> list[wire.Capture]:
        """Return the captures as messages, oldest first."""
        return [wire.Capture(**msgspec.structs.asdict(kept)) for kept in self.kept]

    def _keep(self, after: list[KeptCapture]) -> None:
        gone, self.kept = [one for one in self.kept if one not in after], after
        for one in gone:
            self.discard(one.name)

    def _write(self, kept: list[KeptCapture]) -> None:
        part = self.folder / f".{LIST}.part"
        part.write_bytes(msgspec.json.encode(kept))
        part.replace(self.folder / LIST)


def _read_list(path: Path) -> list[KeptCapture]:
    """Return the captures in the list, none where the list does not exist yet. Raises `OSError` and `MsgspecError`."""
    return msgspec.json.decode(path.read_bytes(), type=list[KeptCapture]) if path.exists() else []
