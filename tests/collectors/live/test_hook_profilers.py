"""The user's own profilers under the hook: each sees what it would see alone, and we see what is outside of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from deepprof.collectors.live.packets import Reason
from tests.collectors.live.hooked import Done, run_plain

pytestmark = pytest.mark.skipif(  # programs import it, which takes seconds; the tests do not
    find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)

NUMBERS = re.compile(rb"\d+")  # times, processes and threads in what torch logs


@pytest.fixture(scope="module")
def profiled(hooked: Callable[..., Done]) -> Done:
    return hooked("profilers.py")


@pytest.fixture(scope="module")
def alone() -> subprocess.CompletedProcess[bytes]:
    return run_plain("profilers.py")


def test_each_profiler_sees_what_it_sees_alone(profiled: Done, alone: subprocess.CompletedProcess[bytes]) -> None:
    assert profiled.process.stdout.decode() == alone.stdout.decode()
    assert b"scheduled [" in alone.stdout
    assert profiled.process.returncode == alone.returncode == 0


def test_warnings_are_the_same(profiled: Done, alone: subprocess.CompletedProcess[bytes]) -> None:
    assert NUMBERS.sub(b"", profiled.process.stderr) == NUMBERS.sub(b"", alone.stderr)


def test_what_is_outside_of_profilers_is_ours(profiled: Done) -> None:
    counts = profiled.counts()
    assert counts["aten::sin"] == 1
    # The library comes back within milliseconds of a profiler's end, on a thread of its own: what runs sooner is in the
    # gap. Outside of profilers there are no more than these: while the schedule waits, and after torch lost a session.
    assert all(counts.get(name, 0) <= 1 for name in ("aten::cos", "aten::tan"))
    assert all(counts.get(name, 0) <= 3 for name in ("aten::ones", "aten::add"))
    assert sum(counts.get(name, 0) for name in ("aten::cos", "aten::tan", "aten::ones", "aten::add")) >= 2


def test_each_return_is_a_gap(profiled: Done) -> None:
    reasons = [reason for *_, reason in profiled.heard[0].heads]
    assert Reason.BUSY in reasons
    assert set(reasons) <= {Reason.NONE, Reason.BUSY}
