"""An honest sender: a process that sends the records of some ranks through the client that everybody uses."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.board import Board, State
from benchmarks.chaos.records import read_messages
from deepprof.live.client.credentials import Credentials
from deepprof.live.client.endpoint import Endpoint, find_endpoint
from deepprof.live.client.sender import Sender, SendPolicy
from deepprof.v1.records_pb2 import CLOCK_SESSION, Batch, End, Hello

__all__ = ["Task", "job_of", "send_ranks"]

PR_SET_PDEATHSIG = 1
PAUSE_S = 0.02  # between examines the board


@dataclass(frozen=True, slots=True)
class Task:
    """The work of the sender process `number`: its own ranks job, on slots of the board."""

    number: int
    ranks: int
    address: str
    folder: Path
    policy: SendPolicy

    @property
    def job(self) -> str:
        return job_of(self.number)


def job_of(number: int) -> str:
    """Return the job of a sender process."""
    return f"honest-{number}"


@dataclass(slots=True)
class Diary:
    """What a process shows at its end: when each batch was sent and how long it waited to be durable, and troubles."""

    waits: list[tuple[float, float]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    notices: int = 0
    connections: int = 0


@dataclass(slots=True)
class Line:
    """One rank: its sender, and the batches that wait for their acknowledgement."""

    task: Task
    rank: int
    board: Board
    diary: Diary
    waiting: deque[tuple[int, float]] = field(default_factory=deque)
    had: int = 0  # records that were acknowledged to a former process, which was killed

    def __post_init__(self) -> None:
        self.had = self.board.look(self.slot)[1]

    @property
    def slot(self) -> int:
        return self.task.number * self.task.ranks + self.rank

    async def run(self, endpoint: Endpoint) -> None:
        """Send until instructed to stop; a failure is the rank's, and is told."""
        try:
            sent = await self.send(endpoint)
        except Exception as error:  # whatever it is, this sender has gone
            self.diary.gone.append(f"{self.task.job}/{self.rank}: {error}")
            self.board.note(self.slot, state=State.GONE)
        else:
            self.diary.connections += sent
            self.board.note(self.slot, state=State.ENDED)

    async def send(self, endpoint: Endpoint) -> int:
        """Send batches at the board's pace, then the end; returns over how many connections."""
        hello = Hello(job=self.task.job, rank=self.rank, rank_known=True, collector="chaos", clock=CLOCK_SESSION)
        async with Sender(endpoint, hello, self.task.policy, notice=self.note_failure) as sender:
            hearing = asyncio.create_task(self.hear(sender))
            try:
                for batch, count in read_messages(self.task.folder / "messages"):
                    if batch.first + count <= self.had:
                        continue
                    if not await self.may_send():
                        break
                    await self.give(sender, batch, count)
                sent = await sender.end(End())
            finally:
                hearing.cancel()
            self.take(sender)
        return sent.connections

    def note_failure(self, _: str) -> None:
        self.diary.notices += 1

    async def may_send(self) -> bool:
        """Wait for the next batch's time; return whether it is to be sent."""
        began = time.monotonic()
        while not self.board.stopping:
            pace = self.board.pace
            left = began + 1 / pace - time.monotonic() if pace else PAUSE_S
            if left <= 0:
                return True
            await asyncio.sleep(min(left, PAUSE_S))
        return False

    async def give(self, sender: Sender, batch: Batch, count: int) -> None:
        """Give a batch to the client, which may hold us up."""
        end = batch.first + count
        self.waiting.append((end, time.monotonic()))
        self.board.note(self.slot, given=end)
        await sender.send(batch, count)

    async def hear(self, sender: Sender) -> None:
        """Note what is acknowledged, as soon as it is."""
        while True:
            changed = sender.changed
            self.take(sender)
            await changed.wait()

    def take(self, sender: Sender) -> None:
        """Note what is acknowledged by now."""
        durable, now = sender.sent.durable, time.monotonic()
        self.board.note(self.slot, durable=max(durable, self.had))
        while self.waiting and self.waiting[0][0] <= durable:
            sent = self.waiting.popleft()[1]
            self.diary.waits.append((sent, now - sent))


async def send_all(task: Task, board: Board, diary: Diary) -> None:
    """Send all ranks of the task."""
    endpoint = find_endpoint(task.address, Credentials(token_file=str(task.folder / "honest.token")), environ={})
    await asyncio.gather(*(Line(task, rank, board, diary).run(endpoint) for rank in range(task.ranks)))


def send_ranks(task: Task) -> None:
    """Be a sender: exit 0 where all was acknowledged, 1 where a rank has gone."""
    die_with_parent()
    board, diary = Board(task.folder / "board"), Diary()
    asyncio.run(send_all(task, board, diary))
    told = {"waits": diary.waits, "gone": diary.gone, "notices": diary.notices, "connections": diary.connections}
    (task.folder / f"diary-{task.number}-{os.getpid()}.json").write_text(json.dumps(told))
    raise SystemExit(1 if diary.gone else 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that made it ends, however that ends; leave Ctrl-C to that one."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
