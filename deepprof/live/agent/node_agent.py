"""The agent as a whole: its socket, its ranks, its sources, from start to end."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deepprof.live.agent import answers
from deepprof.live.agent.members import SessionMembers
from deepprof.live.agent.pacing import Pacing
from deepprof.live.agent.ranks import AgentRanks
from deepprof.live.agent.server import AgentServer, bind
from deepprof.live.agent.sources import AgentSource, SourceOptions, make_sources
from deepprof.live.agent.spool import SpoolBudget, make_root
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.retrying import CLOCK, Clock
from deepprof.live.process.file_limit import raise_file_limit
from deepprof.live.process.stopping import stop_on_signals, wake
from deepprof.live.process.supervision import FirstFailure
from deepprof.live.wire.addresses import default_address

log = logging.getLogger(__name__)

SOCKET = "agent.sock"
SWEEP_S = 0.5
IDLE_S = 30.0  # without a process and without work, before an agent that was started for a run ends
ORPHANED_IDLE_S = 15.0  # the same once that run is gone; a child that it left behind may still import torch
STUCK_S = 300.0  # without a daemon, before an agent that only has spools left ends: the next agent sends them
LAST_S = 5.0  # for the last records to arrive when the agent is instructed to stop


def default_socket(environ: Mapping[str, str]) -> Path:
    """Return where the agent listens, next to the daemon's own socket."""
    return Path(str(default_address(environ).path)).with_name(SOCKET)


def default_spool(environ: Mapping[str, str]) -> Path:
    """Return the folder of the spools."""
    state = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "deepprof" / "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How an agent runs. `until_idle`: it ends by itself when nothing is left to do."""

    socket: Path
    spool: Path
    spool_nbytes: int = 1 << 30
    pacing: Pacing = field(default_factory=Pacing)
    for_all: bool = False
    until_idle: bool = False
    source_options: SourceOptions = field(default_factory=SourceOptions)


class NodeAgent:
    """One agent. `serve` runs it; `answer` returns its status."""

    def __init__(self, settings: AgentSettings, endpoint: Endpoint, clock: Clock = CLOCK) -> None:
        self.settings, self.endpoint, self.clock = settings, endpoint, clock
        self.began_unix_ns = time.time_ns()
        self.vitals = FirstFailure()
        budget = SpoolBudget(settings.spool_nbytes)
        self.roster = AgentRanks(endpoint, settings.spool, budget, notice=self.hear_problem, vitals=self.vitals)
        self.members = SessionMembers(self.roster.open, settings.pacing)
        self.roster.awaits, self.members.let_go = self.members.awaits, self.roster.let_go
        self.sources: list[AgentSource] = []
        self.server: AgentServer | None = None
        self.starter = os.getppid()
        self.busy_s = clock.now_s()

    def hear_problem(self, text: str) -> None:
        """Log why records do not arrive; the log leaves out repeated lines."""
        log.warning("not-sent", extra={"why": text})

    async def serve(self) -> None:
        """Serve until told to stop, or idle. Raises `UsageError`, `OSError`, `SpoolError`, and `ProcessFailedError`."""
        async with AsyncExitStack() as stack:
            stopping = stack.enter_context(stop_on_signals())
            self.vitals.failed = partial(wake, asyncio.get_running_loop(), stopping)
            make_root(self.settings.spool)
            listening = bind(self.settings.socket, for_all=self.settings.for_all)
            server = self.server = AgentServer(listening, self.members, self.answer, self.clock, self.settings.for_all)
            stack.push_async_callback(self.roster.close)
            stack.push_async_callback(server.close)
            self.roster.resume()
            tasks = [self.start("the agent's socket", server.run()), *self.start_sources()]
            stack.push_async_callback(_end_tasks, tasks)
            log.info("listening", extra={"socket": str(self.settings.socket), "to": str(self.endpoint.address)})
            await self.vitals.watch("the agent's house", self.keep_house(stopping, tasks))
            await _end_tasks(tasks)  # sources end their ranks
            await server.close()  # the next agent has that records not read by now are missing
            await self.wind_up()
        self.vitals.check("the agent")
        log.info("stopped")

    def start(self, part: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that the agent depends on."""
        return asyncio.create_task(self.vitals.watch(part, work))

    async def keep_house(self, stopping: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
        """Look after processes and ranks until the agent is to stop. Raises the error that ended a task early."""
        while not stopping.is_set() and not self.is_done():
            self.members.sweep(self.clock.now_s())
            self.roster.settle()
            _raise_failures(tasks)
            await self.pause(stopping, SWEEP_S)

    def start_sources(self) -> list[asyncio.Task[None]]:
        """Start the sources next to the processes. Raises `UsageError`."""
        source_options, home = self.settings.source_options, self.settings.socket.parent
        self.sources = make_sources(source_options, home, self.endpoint, self.roster.open, self.hear_source)
        return [self.start(f"the source {type(source).__name__}", source.run()) for source in self.sources]

    def hear_source(self, text: str) -> None:
        """Log a notice of a source."""
        log.warning("source", extra={"text": text})

    async def pause(self, stopping: asyncio.Event, seconds: float) -> None:
        """Wait for `seconds`, or until the agent is to stop."""
        waiting = asyncio.ensure_future(stopping.wait())
        await asyncio.wait((waiting, asyncio.ensure_future(self.clock.sleep(seconds))), return_when="FIRST_COMPLETED")
        waiting.cancel()

    def is_done(self) -> bool:
        """Whether the agent has had nothing to do for long enough."""
        now_s = self.clock.now_s()
        if self.is_needed() or not self.settings.until_idle:
            self.busy_s = now_s
        patience_s = IDLE_S if os.getppid() == self.starter else ORPHANED_IDLE_S
        return now_s - self.busy_s >= (patience_s if self.roster.is_idle else STUCK_S)

    def is_needed(self) -> bool:
        """Whether a connection is open, or something is under way."""
        at_work = any(state.get("processes") or state.get("waiting") for state in self.describe_sources())
        spoken_with = self.server is not None and bool(self.server.connections)
        return spoken_with or bool(self.members.present) or self.roster.is_sending or at_work

    async def wind_up(self) -> None:
        """Give held records to the spools, and the uplinks a moment: the next agent sends what stays in the spools."""
        self.members.pause()
        until_s = self.clock.now_s() + LAST_S
        while self.clock.now_s() < until_s and self.has_unsent():
            await self.clock.sleep(SWEEP_S / 10)

    def has_unsent(self) -> bool:
        """Whether a spool has records that have not arrived, and the daemon takes them."""
        states = [(active.uplink.state, active.spool) for active in self.roster.all]
        return any(state.connected and state.durable < spool.next for state, spool in states)

    def describe_sources(self) -> list[dict[str, Any]]:
        """Return the states of the sources."""
        return [source.state() for source in self.sources]

    def answer(self) -> answers.AgentStatus:
        """Return the agent's status."""
        states = [active.uplink.state for active in self.roster.all]
        problems = [state.problem for state in states if state.problem]
        members = self.members.all
        return answers.AgentStatus(
            schema=answers.SCHEMA,
            pid=os.getpid(),
            began_unix_ns=self.began_unix_ns,
            socket=str(self.settings.socket),
            to=str(self.endpoint.address),
            connected=any(state.connected for state in states),
            problem=problems[0] if problems else None,
            spool=answers.SpoolState(self.roster.budget.nbytes, self.roster.budget.limit_nbytes),
            processes=tuple(member.describe() for member in members),
            sources=self.describe_sources(),
            refused=tuple(answers.RefusedProcess(each.peer.pid, each.refusal) for each in members if each.refusal),
            level_changes=[change for member in members for change in member.describe_changes()],
        )


def _raise_failures(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _end_tasks(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run(settings: AgentSettings, endpoint: Endpoint) -> None:
    """Run an agent until it is instructed to stop. Raises `DeepProfError`."""
    raise_file_limit()  # each rank has five open files
    asyncio.run(NodeAgent(settings, endpoint).serve())
