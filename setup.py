"""The compiled halves: plain C without Python.h, loaded by ctypes from beside its module; Python works without them."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup

FLAGS = ["-O3", "-std=c11"]
INJECT = sorted(Path("deepprof/collectors/live/inject").glob("*.[ch]"))


def extension(name: str, sources: list[str], depends: list[str], *, flags: list[str], link: list[str]) -> Extension:
    """Return an extension whose build may fail without harm."""
    kinds = {"extra_compile_args": [*FLAGS, *flags], "extra_link_args": link, "optional": True}
    return Extension(f"deepprof.{name}", sources, depends=depends, **kinds)


def small(name: str, folder: str, source: str, *depends: str) -> Extension:
    """Return an extension of one source beside its headers."""
    return extension(name, [f"{folder}/{source}"], [f"{folder}/{each}" for each in depends], flags=[], link=[])


setup(
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
        # The library that a job's driver or its torch loads: Linux, no header of NVIDIA's. Once loaded, it stays.
        extension(
            "collectors.live.inject._inject",
            [str(path) for path in INJECT if path.suffix == ".c"],
            [str(path) for path in INJECT if path.suffix == ".h"],
            flags=["-fvisibility=hidden", "-pthread"],
            link=["-Wl,-z,nodelete", "-pthread", "-ldl"],
        ),
    ]
)
