"""Ranges from before the agent's first answer: kept while no one has, and counted where no one wants them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from deepprof.collectors.live.packets import VERSION, CollectionLevel, Kind, Reason
from tests.chance import examples
from tests.patience import UNHURRIED
from tests.widening import slow_unless

from .building import SANITIZERS, build
from .reader import PATIENCE_S, SANITIZED, Agent, Connection, await_truth

RING = 1 << 14  # ranges of a thread that wait
SOON_MS = 30_000  # where no one waits, though a minute is what an agent that may answer yet is given


class Run:
    """A job of `early.c` and the agent that it meets."""

    def __init__(self, flavour: str, folder: Path, words: str, **settings: object) -> None:
        self.socket = folder / "socket"
        built = build(flavour)
        own = {"PATH": os.environ["PATH"], "JOB_LIBRARY": built.library, "DEEPPROF_SOCKET": self.socket, **SANITIZED}
        own |= UNHURRIED
        environment = {name: str(value) for name, value in (own | settings).items()}
        command = [str(built.early), *words.split()]
        pipe = subprocess.PIPE
        self.job = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def await_ready(self) -> None:
        """Return when the job has come to `line`."""
        assert self.job.stdout is not None
        while self.job.stdout.readline() not in ("ready\n", ""):
            pass

    def go_on(self) -> None:
        assert self.job.stdin is not None
        self.job.stdin.write("\n")
        self.job.stdin.flush()

    def end(self) -> list[int]:
        """Return the numbers that the job printed since it was ready; it states nothing else."""
        out, err = self.job.communicate(timeout=PATIENCE_S)
        assert (self.job.returncode, err) == (0, ""), err
        return [int(line) for line in out.split() if line != "ready"]


Start = Callable[..., AbstractContextManager[Run]]


# Memory is examined in `test_inject_sanitized` and `test_ranges`; what is new here is who comes first.
@pytest.fixture(params=slow_unless(lambda flavour: flavour != "address", SANITIZERS))
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(flavour: str, tmp_path: Path) -> Start:
    @contextmanager
    def start_job(words: str, **settings: object) -> Iterator[Run]:
        run = Run(flavour, tmp_path, words, **settings)
        with run.job:
            try:
                yield run
            finally:
                run.job.kill()

    return start_job


def frames(said: Connection) -> list[tuple[int, int, Reason]]:
    """Return first, count and reason of what was stated, where it follows no other without a gap; ended by END's."""
    found: list[tuple[int, int, Reason]] = []
    for kind, first, count, reason in said.frames:
        if found and kind is Kind.RANGES and not reason and sum(found[-1][:2]) == first:
            found[-1] = (found[-1][0], found[-1][1] + count, found[-1][2])
        else:
            found.append((first, count, reason))
    return found


def await_hello(agent: Agent) -> Connection:
    await_truth(lambda: agent.connections and agent.connections[0].hello, "a word")
    return agent.connections[0]


def say_welcome(agent: Agent, level: CollectionLevel = CollectionLevel.ON) -> Connection:
    """Answer a job that has waited for it."""
    said = await_hello(agent)
    said.say(Kind.WELCOME, VERSION, level)
    await_truth(lambda: said.ticks[-1]["level"] == level, "the level")
    return said


def await_tick(agent: Agent, number: int) -> None:
    await_truth(lambda: len(agent.connections) > number and agent.connections[number].ticks, "a tick")


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that answers when it is instructed to."""
    agent = Agent(tmp_path / "socket")
    agent.answer = b""
    with agent:
        yield agent


def test_a_job_that_is_over_before_its_worker_begins_is_heard(start: Start, tmp_path: Path) -> None:
    jobs = max(2, examples(4))
    with Agent(tmp_path / "socket") as agent:
        for _ in range(jobs):
            with start("start ranges 50") as run:
                assert run.end() == [0]
        await_truth(lambda: len(agent.connections) == jobs and all(c.closed for c in agent.connections), "their ends")
    assert [frames(said) for said in agent.connections] == [[(0, 50, Reason.NONE), (50, 0, Reason.NONE)]] * jobs


def test_what_came_before_the_answer_is_given_with_it(start: Start, silent: Agent) -> None:
    with start("start ranges 100 line ranges 20") as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    assert frames(said) == [(0, 120, Reason.NONE), (120, 0, Reason.NONE)]


def test_an_end_waits_for_an_answer_that_may_come(start: Start, silent: Agent) -> None:
    with start("start ranges 100 finish") as run:
        await_hello(silent).say(Kind.WELCOME, VERSION, CollectionLevel.ON)
        run.end()
        assert frames(silent.only()) == [(0, 100, Reason.NONE), (100, 0, Reason.NONE)]


def test_an_agent_that_never_answers_keeps_no_job_from_ending(start: Start, silent: Agent) -> None:
    with start("start ranges 100 line finish finish ranges 5", DEEPPROF_FINISH_MS=3000) as run:
        run.await_ready()
        await_hello(silent)
        run.go_on()
        first, again = run.end()
        said = silent.only()
    assert said.frames == []
    assert 2000 < first < SOON_MS
    assert again < first  # it is not waited for once more


@pytest.mark.parametrize("listens", [True, False])
def test_without_an_agent_nobody_waits(start: Start, tmp_path: Path, listens: bool) -> None:
    """Neither where there is no socket nor where one is left that no one listens at."""
    if listens:
        with Agent(tmp_path / "other") as agent:
            os.link(agent.path, tmp_path / "socket")
    with start("start ranges 100 finish") as run:
        state, took_ms = run.end()
    assert (state, took_ms < SOON_MS) == (0, True)


def test_what_an_agent_does_not_want_is_counted(start: Start, silent: Agent) -> None:
    with start("start ranges 100 line ranges 7 line ranges 20") as run:
        run.await_ready()
        said = say_welcome(silent, CollectionLevel.OFF)
        assert int(said.ticks[-1]["next"]) == 100
        run.go_on()
        run.await_ready()
        said.say(Kind.LEVEL, CollectionLevel.ON)
        await_truth(lambda: said.ticks[-1]["level"] == CollectionLevel.ON, "the level")
        run.go_on()
        run.end()
        silent.only()
    assert frames(said) == [(100, 20, Reason.DUTY_CYCLE), (120, 0, Reason.NONE)]


def test_an_answer_that_comes_too_late_finds_the_rest(start: Start, silent: Agent) -> None:
    with start("start ranges 100 idle 400 line ranges 20", DEEPPROF_EARLY_MS=200) as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    ((first, count, reason), end) = frames(said)
    assert first + count == 120
    assert count in (20, 120)  # all, where the worker could not examine the time meanwhile
    assert reason == (Reason.DISCONNECTED if first else Reason.NONE)
    assert end == (120, 0, Reason.NONE)


def test_where_nothing_is_to_be_kept_early_nothing_is(start: Start, silent: Agent) -> None:
    with start("start ranges 100 line ranges 20", DEEPPROF_EARLY_MS=0) as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    assert frames(said) == [(0, 20, Reason.NONE), (20, 0, Reason.NONE)]


def test_a_full_ring_is_told_of(start: Start, silent: Agent) -> None:
    with start("start ranges 40000 line ranges 20") as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    assert frames(said) == [(0, RING, Reason.NONE), (40_000, 20, Reason.BUFFER_FULL), (40_020, 0, Reason.NONE)]


def test_more_threads_than_rings_may_have_come_and_gone(start: Start, silent: Agent) -> None:
    with start("start passing 600 line ranges 20") as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    assert sum(count for _, count, _ in frames(said)) + said.lost == 6020
    assert (said.lost, said.notices) == (0, [])


def test_more_than_a_small_queue_holds_comes_as_far_as_it_fits(start: Start, silent: Agent) -> None:
    with start("start ranges 10000 line ranges 20", DEEPPROF_QUEUE_NBYTES=1 << 17) as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    kept = sum(count for _, count, _ in frames(said))
    assert frames(said)[0][0] == 0
    assert kept >= (1 << 16) // 40 + 20 - 1
    assert kept + said.lost == 10_020


def test_a_pause_before_the_answer_ends_what_was_kept(start: Start, silent: Agent) -> None:
    with start("start ranges 100 pause quiet 7 line quiet 7 resume line ranges 20") as run:
        run.await_ready()
        said = await_hello(silent)
        said.say(Kind.WELCOME, VERSION, CollectionLevel.ON)
        await_truth(lambda: said.ticks, "a tick")
        run.go_on()
        run.await_ready()
        await_truth(lambda: said.ticks[-1]["level"] == CollectionLevel.ON, "the level")
        run.go_on()
        run.end()
        silent.only()
    assert frames(said) == [(100, 20, Reason.BUSY), (120, 0, Reason.NONE)]
    assert set(said.names.values()) == {"range"}


def test_a_pause_before_the_start_is_respected(start: Start, silent: Agent) -> None:
    with start("pause start quiet 10 resume line ranges 5") as run:
        run.await_ready()
        said = say_welcome(silent)
        run.go_on()
        run.end()
        silent.only()
    assert frames(said) == [(0, 5, Reason.NONE), (5, 0, Reason.NONE)]


def test_pauses_while_the_answer_comes(start: Start, tmp_path: Path) -> None:
    """Whenever it does, nothing is kept from within a pause, and everything outside is kept or counted."""
    toggles = "pause quiet 3 resume ranges 3 " * 30
    with Agent(tmp_path / "socket") as agent:
        for number in range(max(2, examples(6))):
            with start(f"start threads 4 {toggles} line finish") as run:
                run.await_ready()
                await_tick(agent, number)
                run.go_on()
                run.end()
        await_truth(lambda: all(c.closed for c in agent.connections), "the ends")
    for said in agent.connections:
        assert said.ended
        assert "quiet" not in said.names.values()
        assert sum(count for _, _, count, _ in said.frames) + said.lost <= 4 * 1000 + 3 * 30


def test_a_forked_child_counts_from_zero(start: Start, silent: Agent, flavour: str) -> None:
    is_address = flavour == "address"  # its own allocator, locked by a thread that forks not, stays so in the child
    threads, settled = (0, "line ") if is_address else (2, "")
    child = "fork quiet 5 start ranges 30 line finish parent"
    words = f"start ranges 100 threads {threads} {settled}{child} fork quiet 5 parent ranges 20 line"
    with start(words, DEEPPROF_EARLY_MS=60_000) as run:
        if is_address:
            run.await_ready()
            await_hello(silent)
            run.go_on()
        for _ in range(2):
            run.await_ready()
        await_truth(lambda: len(silent.connections) == 2 and all(c.hello for c in silent.connections), "two words")
        for said in silent.connections:
            said.say(Kind.WELCOME, VERSION, CollectionLevel.ON)
            await_truth(lambda said=said: said.ticks[-1]["level"] == CollectionLevel.ON, "the level")
        for _ in range(2):
            run.go_on()
        run.end()
        await_truth(lambda: all(c.closed for c in silent.connections), "two ends")
    parent, other = sorted(silent.connections, key=lambda said: said.hello["pid"] != str(run.job.pid))
    assert parent.hello["session"] != other.hello["session"]
    assert frames(other) == [(0, 30, Reason.NONE), (30, 0, Reason.NONE)]
    assert set(other.names.values()) == {"range"}
    assert other.threads == {int(other.hello["pid"])}
    assert frames(parent)[-1][:2] == (threads * 1000 + 120, 0)
    assert parent.lost == 0


def test_where_no_thread_can_be_made_nothing_goes_on(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        run = Run("plain", tmp_path, "cramped start pause resume quiet 5 roomy quiet 5 start ranges 10 finish")
        first, second, _ = run.end()
        said = agent.only()
    assert (first, second) == (-1, 0)
    assert frames(said) == [(0, 10, Reason.NONE), (10, 0, Reason.NONE)]
