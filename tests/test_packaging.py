"""The wheel holds every module of the tree, the C library's sources where none was built, and no test."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.once import make_once

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("deepprof", "collectors", "mining", "metrics")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of the tree."""
    (built,) = make_once(tmp_path_factory, "wheel", build_wheel).glob("*.whl")
    return zipfile.ZipFile(built)


def build_wheel(out: Path) -> None:
    """Build the wheel as `pip wheel .` does, from a copy so that the tree stays clean."""
    copy = out / "tree"
    copy.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    archive = subprocess.run(
        ["tar", "-c", "--null", "-T", "-"], input=tracked.encode(), cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", copy], input=archive.stdout, check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, copy]
    subprocess.run(command, check=True, capture_output=True)


def modules() -> set[str]:
    """Return the modules of the tree under the names they are imported by; links are not followed twice."""
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            relative = path.relative_to(ROOT)
            if not any((ROOT / parent).is_symlink() for parent in relative.parents):
                found.add(str(relative) if folder == "deepprof" else f"deepprof/{relative}")
    return found


def test_the_wheel_holds_the_tree(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if name.endswith(".py")}
    assert held == modules()


def test_the_wheel_has_types_licence_and_command(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    for package in ("", "collectors/", "mining/", "metrics/"):
        assert f"deepprof/{package}py.typed" in names
    assert {name for name in names if name.endswith(".pyi")} == {
        f"deepprof/v1/{path.name}" for path in (ROOT / "deepprof/v1").glob("*.pyi")
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "deepprof = deepprof.commands:main" in wheel.read(entry_points).decode()


def test_nothing_lands_under_a_generic_name(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel.namelist()} == {"deepprof"}


def test_the_links_are_links() -> None:
    for name in FOLDERS[1:]:
        assert (ROOT / "deepprof" / name).is_symlink(), f"deepprof/{name}: a clone without symbolic links is incomplete"
