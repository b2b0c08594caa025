"""The raw windows that were kept: which there are, and which go when there are too many."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from deepprof.v1 import query_pb2 as wire

__all__ = ["Captures", "Kept"]

LIST = "captures.json"


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One capture: a folder of this name, which `deepprof diagnose` reads."""

    name: str
    job: str
    rank: int
    reason: str
    taken_unix_ns: int
    nbytes: int


@dataclass(slots=True)
class Captures:
    """The captures in a folder, oldest first; never more than `most`, nor more bytes than `most_nbytes`."""

    folder: Path
    most: int
    most_nbytes: int
    kept: list[Kept] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path, most: int, most_nbytes: int) -> Captures:
        """Return the captures in `folder`; what its list does not name is left alone, but for parts of our own."""
        folder.mkdir(mode=0o700, exist_ok=True)
        captures = cls(folder, most, most_nbytes)
        try:
            listed = msgspec.json.decode((folder / LIST).read_bytes(), type=list[Kept])
        except (OSError, msgspec.MsgspecError):
            listed = []
        captures.kept = [kept for kept in listed if (folder / kept.name).is_dir() and Path(kept.name).name == kept.name]
        for part in folder.glob(".*.part"):
            shutil.rmtree(part, ignore_errors=True)
        return captures

    def name(self, unix_ns: int) -> str:
        """Return the name of a new capture."""
        names = {kept.name for kept in self.kept}
        return next(name for i in range(len(names) + 1) if (name := f"{unix_ns}-{i}") not in names)

    def add(self, kept: Kept) -> None:
        """Take in a capture that was written, and let the oldest go where there are too many."""
        self.kept.append(kept)
        while len(self.kept) > self.most or sum(one.nbytes for one in self.kept) > self.most_nbytes:
            self._remove(self.kept[0])
        self._write()

    def forget(self, job: str) -> None:
        """Remove the captures of a job."""
        for kept in [one for one in self.kept if one.job == job]:
            self._remove(kept)
        self._write()

    def measure(self, name: str) -> int:
        """Return how many bytes a capture takes."""
        return sum(file.stat().st_size for file in (self.folder / name).rglob("*") if file.is_file())

    def listed(self) -> list[wire.Capture]:
        """Return the captures as messages, oldest first."""
        return [wire.Capture(**msgspec.structs.asdict(kept)) for kept in self.kept]

    def _remove(self, kept: Kept) -> None:
        self.kept.remove(kept)
        self._write()
        shutil.rmtree(self.folder / kept.name, ignore_errors=True)

    def _write(self) -> None:
        part = self.folder / f".{LIST}.part"
        part.write_bytes(msgspec.json.encode(self.kept))
        part.replace(self.folder / LIST)
