"""Plug-ins as users have them: a package built and installed apart, and a fresh process that finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["deepprof_with", "install_package"]


def install_package(files: Mapping[str, str], folder: Path) -> None:
    """Install the package that `files` are, by name, into `folder`/target, as its own distribution."""
    source, target = folder / "source", folder / "target"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", target]
    command = [sys.executable, "-m", "pip", "install", *options, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def deepprof_with(installed: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that sees what is installed in a directory."""
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "deepprof", *arguments]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
