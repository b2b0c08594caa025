"""The wheel contains every module of the tree, the C library's sources where none was built, and no test."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.once import make_once

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("deepprof", "collectors", "mining", "metrics")
PAGE = "deepprof/web/static"
ASSETS = {f"{PAGE}/{name}" for name in ("app.js", "app.css", "licenses.txt")}


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
    if (ROOT / PAGE).is_dir():  # bundled by this clone's own installation: Node need not do it again
        shutil.copytree(ROOT / PAGE, copy / PAGE)
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


def test_the_wheel_holds_the_peaks_of_devices(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if "/peaks/" in name}
    assert held == {f"deepprof/metrics/cost/peaks/{path.name}" for path in (ROOT / "metrics/cost/peaks").iterdir()}
    assert len(held) >= 7


def test_the_wheel_holds_the_page(wheel: zipfile.ZipFile) -> None:
    require_page()
    assert wheel.namelist().count("deepprof/web/static/app.js") == 1
    assert set(wheel.namelist()) >= ASSETS


def require_page() -> None:
    if not (ROOT / PAGE / "app.js").is_file():
        pytest.skip("the page was not bundled when this clone was installed: no network to the npm registry")


def test_a_source_archive_holds_the_page_and_not_its_sources(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    require_page()
    tree = make_once(tmp_path_factory, "wheel", build_wheel) / "tree"
    copy = shutil.copytree(tree, tmp_path / "tree", symlinks=True)
    subprocess.run([sys.executable, "setup.py", "--quiet", "sdist"], cwd=copy, check=True, capture_output=True)
    (archive,) = (copy / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert names >= ASSETS
    assert not {name for name in names if name.startswith("web/")}  # so that no one who builds from it needs Node


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
