"""An agent with an error at one place of its code, for every place: does it serve on, or end, say why and lose nothing?

`python -m tests.deepprof.live.agent.faults.every_place FOLDER SHARD SHARDS` prints a line of JSON for each place, as
`tests.deepprof.live.service.faults.every_place` does for the daemon; `--list` lists the places.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.deepprof.live.agent.faults.not_passed import NOT_PASSED
from tests.deepprof.live.service.faults.injection import PLAN, InjectedError, install
from tests.deepprof.live.service.faults.trying import main
from tests.patience import PATIENCE_S

install("deepprof.live.agent", "deepprof.live.process", "deepprof.live.segments")

from deepprof.collectors.live.packets import Reason  # noqa: E402
from deepprof.live.agent import node_agent as agent_module  # noqa: E402
from deepprof.live.agent import ranks, reports  # noqa: E402
from deepprof.live.agent.asking import NotAnsweredError, ask  # noqa: E402
from deepprof.live.agent.node_agent import AgentSettings, NodeAgent  # noqa: E402
from deepprof.live.agent.sources import SourceOptions  # noqa: E402
from deepprof.live.agent.spool import SpoolBudget, find_spools  # noqa: E402
from deepprof.live.client.connection import connect  # noqa: E402
from deepprof.live.client.endpoint import find_endpoint  # noqa: E402
from deepprof.live.client.errors import DaemonError  # noqa: E402
from deepprof.live.client.stream import IngestStream  # noqa: E402
from deepprof.live.wire.figures import RankState  # noqa: E402
from deepprof.simulation import simulate, write  # noqa: E402
from tests.deepprof.live.agent.agents import Job, iterations  # noqa: E402
from tests.deepprof.live.service.daemons import running  # noqa: E402

CALL_S = PATIENCE_S  # for one step of the course
TURNS = 10  # of the event loop: enough for everybody who waits for a sender
NAMES = [f"kernel_{number}" for number in range(13)]
PARTS, EACH = 3, 10  # of a job, and iterations in one


@dataclass
class Life:
    """One run of the agent in this process."""

    folder: Path
    to: str
    stop: Callable[[], None] = lambda: None
    over: threading.Event = field(default_factory=threading.Event)
    agent: NodeAgent | None = None
    error: BaseException | None = None
    problems: list[str] = field(default_factory=list)
    clients: tuple[Client, ...] = ()

    @property
    def socket(self) -> Path:
        return self.folder / "a" / "agent.sock"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def run(self, course: Callable[[Life], None]) -> None:
        """Run the agent, and `course` next to it, until both are over."""
        thread = threading.Thread(target=self.follow, args=(course,))
        thread.start()
        try:
            asyncio.run(self.serve())
        except Exception as error:
            self.error = error
        finally:
            self.over.set()
            while thread.is_alive():  # with a process its connections end, also those that were not accepted yet
                for client in self.clients:
                    client.cut()
                thread.join(0.05)

    async def serve(self) -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stopping.set)

        self.stop = stop
        agent_module.stop_on_signals = lambda: contextlib.nullcontext(stopping)
        source_options = SourceOptions(watch=self.folder / "reports", job=f"{self.folder.name}-report")
        self.agent = NodeAgent(
            AgentSettings(socket=self.socket, spool=self.spool, source_options=source_options), find_endpoint(self.to)
        )
        await self.agent.serve()

    def follow(self, course: Callable[[Life], None]) -> None:
        try:
            if self.wait(self.answers):
                course(self)
        except BaseException as error:
            self.problems.append(f"{type(error).__name__}: {error}")
        finally:
            self.stop()

    def wait(self, what: Callable[[], object]) -> bool:
        """Return whether something happens before the agent ends; that it needs too long is a problem."""
        until_s = time.monotonic() + CALL_S
        while not self.has_ended:
            if what():
                return True
            if time.monotonic() > until_s:
                self.problems.append("something never happens")
                return False
        return False

    def answers(self) -> bool:
        """Whether the agent states how it is."""
        try:
            return ask(self.socket, CALL_S) is not None
        except NotAnsweredError:
            return False

    @property
    def has_ended(self) -> bool:
        """Whether the agent ends by itself; it may take a moment to report it."""
        return self.over.wait(0.02) or bool(self.agent and self.agent.vitals.problem)

    def find(self, job: str) -> RankState | None:
        """Return what the daemon has of a job's one rank."""
        with contextlib.suppress(DaemonError), contextlib.closing(connect(self.to, timeout_s=CALL_S)) as client:
            return client.ranks(job)[0]
        return None

    def has_arrived(self, job: str) -> bool:
        """Whether the daemon has all of a job's rank, and has counted it."""
        found = self.find(job)
        return found is not None and found.ended

    def judge(self) -> Iterator[str]:
        """Yield what is wrong with how it ended."""
        yield from self.problems
        if self.error is None and self.agent is not None and self.agent.vitals.problem:
            yield f"it has ended without a word of {self.agent.vitals.problem}"
        if self.error is not None and InjectedError.__name__ not in f"{type(self.error).__name__}: {self.error}":
            yield f"it ended with {type(self.error).__name__}: {self.error}"


def prepare(folder: Path) -> None:
    """Have everything that is done now and then be done at once, and a report are there."""
    agent_module.SWEEP_S = ranks.RETURNING_S = reports.LOOK_S = reports.RETRY_S = 0.05
    reports.ReportSource.__init__.__defaults__ = tuple(  # how long a report must not have changed
        0.05 if value == reports.SETTLE_S else value for value in reports.ReportSource.__init__.__defaults__ or ()
    )
    close_later()
    (folder / "reports").mkdir()
    write(simulate("healthy", iterations=3), folder / "reports" / "job.json.gz")


def close_later() -> None:
    """Have no stream end in the turn of the event loop in which its last answer came: a daemon may do both at once."""
    close = IngestStream.close

    async def closed(stream: IngestStream) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await close(stream)

    IngestStream.close = closed  # type: ignore[method-assign]


class Client:
    """A process of a job with one rank, which goes on after its agent has ended."""

    def __init__(self, name: str) -> None:
        self.name, self.session = name, name.encode().hex()[-32:].rjust(32, "0")
        self.job: Job | None = None
        self.now_ns = time.monotonic_ns()

    def begin(self, life: Life) -> Job:
        """Connect, again where there was a connection."""
        if self.job is None:
            self.job = Job(life, session=self.session, env__DEEPPROF_JOB=self.name)  # type: ignore[arg-type]
            self.job.name(*NAMES)
        else:
            self.job.reconnect()
        self.job.tick()
        return self.job

    def send(self, job: Job) -> None:
        """Send a part of the records."""
        job.records(iterations(EACH, self.now_ns))
        self.now_ns += EACH * 10**6
        job.tick(self.now_ns)

    def cut(self) -> None:
        """Have the connection end."""
        if self.job is not None:
            with contextlib.suppress(OSError):
                self.job.socket.shutdown(socket.SHUT_RDWR)

    def course(self, life: Life) -> bool:
        """Send all, over two connections; return whether nothing went wrong."""
        try:
            job = self.begin(life)
            for part in range(PARTS):
                self.send(job)
                if part == 1:
                    job.reconnect()
                    job.reason = Reason.NONE  # everything that was written is read
            job.end()
        except (OSError, AssertionError):
            return False
        return life.wait(lambda: life.has_arrived(self.name))

    def finish(self, life: Life) -> None:
        """End what has not ended yet, with the agent that is here now."""
        if not life.has_arrived(self.name) and self.job is not None:
            with contextlib.suppress(OSError, AssertionError):
                job = self.begin(life)
                self.send(job)
                job.end()
            life.wait(lambda: life.has_arrived(self.name))


def course(life: Life, unlucky: Client, honest: Client) -> None:
    """Do what jobs do, one of them unlucky; then an honest one has to be served if there is an agent."""
    life.wait(life.answers)
    if not unlucky.course(life) and not life.has_ended:
        unlucky.finish(life)
    life.wait(lambda: [state for state in ask(life.socket, CALL_S).sources if state["files"] and not state["waiting"]])
    if not life.has_ended and not honest.course(life) and not life.has_ended:
        life.problems.append("an honest job was not served")
    life.wait(lambda: life.agent is not None and life.agent.roster.is_idle)  # it has, too, that all has arrived


def left_in(spool: Path) -> dict[str, tuple[str, int]]:
    """Return who sent each job and how many records an agent has left of it to the next one, or has to be sent."""
    spools = find_spools(spool, SpoolBudget())
    found = {spool.hello.job: (spool.hello.collector, spool.next) for spool in spools}
    for each in spools:
        each.close()
    return found


def check_kept(life: Life, clients: tuple[Client, ...], left: dict[str, tuple[str, int]]) -> None:
    """Assert that an agent which starts on what was left sends all of it, once."""
    for client in clients:
        client.finish(life)
        if client.job is None or client.job.next == 0:
            continue
        collector, count = left.get(client.name, ("", 0))
        if not count:
            life.problems += check_account(client, life.find(client.name))
        elif life.wait(lambda: life.agent is not None and life.agent.roster.is_idle):  # no one is replaced any more
            sent = sum(rank.records for rank in life.agent.roster.sent if rank.job == client.name) if life.agent else 0
            found = life.find(client.name)
            if sent < count:
                life.problems.append(f"{client.name}: {count} were left, {sent} are durable")
            life.problems += check_account(client, found, count if found and found.collector == collector else 0)


def check_account(client: Client, found: RankState | None, left: int = 0) -> Iterator[str]:
    """Yield what is wrong with what a daemon has of a client, of which an agent had `left` this many records."""
    if found is None:
        yield f"{client.name} has never arrived"
        return
    account, missing = found.account, sum(found.account.missing.values())
    if account.accepted > client.job.next:  # type: ignore[union-attr]
        yield f"{client.name}: {account.accepted} records of {client.job.next}"  # type: ignore[union-attr]
    if account.accepted + sum(account.dropped.values()) + missing < left:
        yield f"{client.name}: {left} were left, {account} arrived"
    if lost := set(account.missing) - KNOWN:
        yield f"{client.name}: lost for {lost}"


KNOWN = {"disconnected", "restarted", "not-collected", "late"}  # what an agent never had in its hands


def try_place(place: str, folder: Path, *, to: str) -> tuple[str, list[str]]:
    """Return how the agent fares with an error at a place, and what is wrong with that."""
    prepare(folder)
    clients = unlucky, honest = Client(f"{folder.name}-u"), Client(f"{folder.name}-h")
    PLAN.place = place
    life = Life(folder, to, clients=clients)
    life.run(lambda one: course(one, unlucky, honest))
    passed = PLAN.end()
    left = left_in(life.spool)
    again = Life(folder, to, clients=clients)
    again.run(lambda later: check_kept(later, clients, left))
    problems = [*life.judge(), *(f"afterwards: {problem}" for problem in again.problems)]
    if again.error is not None:
        problems.append(f"it does not start again: {again.error}")
    return ("ended" if life.error is not None else "served") if passed else "not passed", problems


@contextlib.contextmanager
def beside_a_daemon() -> Iterator[Callable[[str, Path], tuple[str, list[str]]]]:
    """Give what tries a place, next to a daemon for all of them."""
    with running() as daemon:
        yield partial(try_place, to=daemon.address)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    main(beside_a_daemon, NOT_PASSED)
