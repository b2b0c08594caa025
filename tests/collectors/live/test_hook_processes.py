"""The hook in programs of several processes: who trains is heard, helpers are not."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from deepprof.collectors.live.hook import find_hook
from tests.collectors.live.hooked import Done, run_plain

pytestmark = pytest.mark.skipif(  # programs import it, which takes seconds; the tests do not
    find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_children_with_a_torch_of_their_own_are_heard_unless_they_are_daemons(
    hooked: Callable[..., Done], method: str
) -> None:
    done = hooked("processes.py", method, processes=2)
    assert done.process.returncode == 0, done.process.stderr
    assert done.process.stderr == b""
    parent, child = sorted((done.counts(connection=i) for i in (0, 1)), key=lambda counts: "aten::cos" in counts)
    assert len(done.heard) == 2  # and not the daemon
    assert parent["aten::sin"] == 5
    assert child["aten::sin"] >= 10
    assert child["aten::cos"] == 1
    assert [heard.ended for heard in done.heard] == [True, True]


def test_forked_children_are_not_heard(hooked: Callable[..., Done]) -> None:
    done = hooked("processes.py", "fork")
    assert done.process.returncode == 0
    assert done.process.stderr == b""
    assert [done.counts(connection=i) for i in range(len(done.heard))] == [{"aten::ones": 5, "aten::sin": 5}]


def test_nothing_is_compiled_again(hooked: Callable[..., Done]) -> None:
    done = hooked("compiled.py")
    assert (done.process.stdout, done.process.returncode) == (b"1\n", 0), done.process.stderr


def test_a_step_is_compiled_as_without_the_hook() -> None:
    """Names of the hook are in no module, where a compiler would look them up."""
    plain, looked = run_plain("compiled_step.py"), run_plain("compiled_step.py", str(find_hook()))
    assert (looked.returncode, looked.stdout) == (0, plain.stdout), looked.stderr
    assert int(plain.stdout) > 0


def test_a_program_that_is_over_at_once_is_heard_whole(hooked: Callable[..., Done]) -> None:
    done = hooked("short.py")
    assert (done.process.returncode, done.process.stdout, done.process.stderr) == (0, b"", b"")
    assert done.counts() == {"aten::ones": 7, "aten::sin": 7}
    assert [heard.ended for heard in done.heard] == [True]
