"""What a sealed block is drawn from: the commit, or the sources where there is none."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

__all__ = ["read_seed"]

ROOT = Path(__file__).resolve().parents[2]
CODE = ("collectors", "mining", "metrics", "deepprof")


def read_seed(root: Path = ROOT) -> str:
    """Return the hash of the commit that is checked out, or that of the sources outside git."""
    asked = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() if asked.returncode == 0 else hash_sources(root)


def hash_sources(root: Path) -> str:
    """Return the hash of the Python sources below `root`."""
    paths = sorted(path for name in CODE for path in (root / name).rglob("*.py"))
    contents = b"".join(path.read_bytes() for path in paths)
    return hashlib.sha256(contents).hexdigest()
