"""A file system as the doctor reads it: below a root that tests make up, with limits on what is read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

MOST_NBYTES = 16 << 20
MOST_FILES = 4096


@dataclass(frozen=True, slots=True)
class FileTree:
    """Files below `root`, named as if that were `/`."""

    root: Path = Path("/")

    def at(self, path: str) -> Path:
        """Return where `path` really is."""
        return self.root / path.lstrip("/")

    def read_bytes(self, path: str) -> bytes:
        """Return a file's first 16 MiB; raises OSError. Files of /proc do not report their size."""
        with self.at(path).open("rb") as file:
            return file.read(MOST_NBYTES)

    def read(self, path: str) -> str | None:
        """Return a file's text, None where it cannot be read."""
        try:
            return self.read_bytes(path).decode("utf-8", "replace")
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether something is there; False also if we may not look."""
        try:
            return self.at(path).exists()
        except OSError:
            return False

    def may_use(self, path: str) -> bool:
        """Whether we may read and write a file."""
        return os.access(self.at(path), os.R_OK | os.W_OK)

    def read_link(self, path: str) -> str | None:
        """Return where a link points, None where that cannot be read."""
        try:
            return os.readlink(self.at(path))
        except OSError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Return the names that match, in order, as if the root were `/`."""
        try:
            found = [f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.lstrip("/"))]
        except OSError:
            return []
        return sorted(found)[:MOST_FILES]

    def in_loader_cache(self, pattern: str) -> list[str]:
        """Return the libraries that the dynamic loader has whose file name matches the regular expression."""
        try:
            cache = self.read_bytes("/etc/ld.so.cache")
        except OSError:
            return []
        names = re.findall(rb"/[^\0]{1,4096}(?=\0)", cache)
        texts = dict.fromkeys(name.decode("utf-8", "replace") for name in names)
        return [text for text in texts if re.fullmatch(pattern, text.rpartition("/")[2])]
