"""The user's own profilers under the hook: each sees what it would see alone, and we see what is outside of them."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec

import pytest

from deepprof.collectors.live.packets import CollectionLevel, Reason
from tests.collectors.live.building import build
from tests.collectors.live.hooked import Done, finish, hooked_environment, is_on, run_plain, start
from tests.collectors.live.listener import Listener

pytestmark = pytest.mark.skipif(  # programs import it, which takes seconds; the tests do not
    find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)

NUMBERS = re.compile(rb"\d+")  # times, processes and threads in what torch logs


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Done:
    listener = Listener(tmp_path_factory.mktemp("agent") / "s").start()

    def is_back(place: int) -> bool:
        return f"place {place}" in listener.last.notices and bool(
            listener.last.ticks[-1]["level"] == CollectionLevel.ON
        )

    with start("profilers.py", **hooked_environment(build("plain").library, listener.path)) as process:
        assert process.stdin is not None
        listener.wait(lambda _: is_on(listener.last))
        for place in (1, 2):
            process.stdin.write(b"\n")
            process.stdin.flush()
            listener.wait(lambda _, place=place: is_back(place))
        done = finish(process)
    listener.wait(lambda _: listener.last.gone)
    listener.stop()
    return Done(done, listener.connections)


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
    assert counts["aten::sin"] == counts["aten::cos"] == counts["aten::tan"] == 1
    # Otherwise what runs before the library is back is in the gap. Outside of profilers there are no more than these:
    # while the schedule waits, and after torch lost a session.
    assert all(counts.get(name, 0) <= 3 for name in ("aten::ones", "aten::add"))


def test_each_return_is_a_gap(profiled: Done) -> None:
    reasons = [reason for *_, reason in profiled.heard[0].heads]
    assert Reason.BUSY in reasons
    assert set(reasons) <= {Reason.NONE, Reason.BUSY}
