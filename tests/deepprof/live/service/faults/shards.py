"""The tests' side of `trying`: runs a shard as a process, and contains what it states against what is expected."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

__all__ = ["PATIENCE_S", "check_shard", "list_places"]

PATIENCE_S = 3000.0  # of a shard: what hangs at one place ends by itself


@cache
def list_places(module: str) -> list[str]:
    """Return all places, as the code has them now."""
    command = [sys.executable, "-m", module, "--list"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return found.stdout.splitlines()


def check_shard(module: str, shard: int, shards: int, not_passed: Mapping[str, str]) -> None:
    """Assert that a shard's places were all tried, nothing was wrong, and those of `not_passed` were not passed."""
    with tempfile.TemporaryDirectory(prefix="dp-", ignore_cleanup_errors=True) as folder:  # a socket's path is short
        command = [sys.executable, "-m", module, folder, str(shard), str(shards)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    sys.stderr.write(found.stderr[-100_000:])  # where something hung
    assert found.returncode == 0
    tried: dict[str, dict[str, Any]] = {one["place"]: one for one in map(json.loads, found.stdout.splitlines())}
    problems = {place: each["problems"] for place, each in tried.items() if each["problems"]}
    assert not problems, json.dumps(problems, indent=1)
    del tried[""]  # the course without an error
    assert sorted(tried) == list_places(module)[shard::shards]
    passed = {place for place, each in tried.items() if each["how"] in ("served", "ended")}
    wrong = (tried.keys() - passed) ^ (not_passed.keys() & tried.keys())
    assert not wrong, f"the list of places that are not passed is wrong in {sorted(wrong)}"
