"""The honest senders of a trial, as processes: started, killed and begun again, stopped, and asked how they fared."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.chaos.board import Board, State
from benchmarks.chaos.sender import Task, job_of, send_ranks
from deepprof.live.client.sender import SendPolicy

__all__ = ["CONTEXT", "Fleet", "Size", "sailing"]

CONTEXT = multiprocessing.get_context("forkserver")  # which imports once, and forks before gRPC has any thread
CONTEXT.set_forkserver_preload(["benchmarks.chaos.sender", "benchmarks.chaos.hostile"])


@dataclass(frozen=True, slots=True)
class Size:
    """So many sender processes of this many ranks, each sending this many batches a second of this many records."""

    senders: int = 6
    ranks: int = 2
    pace: float = 4.0
    records: int = 100
    window_nbytes: int = 256 << 10

    @property
    def streams(self) -> int:
        return self.senders * self.ranks

    def __str__(self) -> str:
        return f"{self.senders} x {self.ranks}"


@dataclass
class Fleet:
    """Senders that send to `addresses` in turn; their board, messages and diaries are in `folder`."""

    size: Size
    folder: Path
    addresses: list[str]
    policy: SendPolicy
    board: Board
    processes: list[BaseProcess] = field(default_factory=list)
    killed: int = 0

    def start(self) -> None:
        self.processes = [self.launch(number) for number in range(self.size.senders)]

    def launch(self, number: int) -> BaseProcess:
        """Start the sender `number`, which goes on where a former one was."""
        address = self.addresses[number % len(self.addresses)]
        task = Task(number, self.size.ranks, address, self.folder, self.policy)
        process = CONTEXT.Process(target=send_ranks, args=(task,), daemon=True)
        process.start()
        return process

    def replace(self, number: int) -> None:
        """Kill a sender, and start it again."""
        self.processes[number].kill()
        self.processes[number].join()
        self.killed += 1
        self.processes[number] = self.launch(number)

    def finish(self, deadline_s: float) -> None:
        """Have all end, and wait until what they sent is acknowledged; who is not done by then counts as gone."""
        self.board.stop()
        until = time.monotonic() + deadline_s
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    @property
    def is_done(self) -> bool:
        """Whether all have sent what they had, or given up."""
        return all(self.board.look(slot)[2] is not State.UNDER_WAY for slot in range(self.size.streams))

    def acknowledged(self) -> int:
        """Return how many records of all senders are acknowledged by now."""
        return sum(self.board.look(slot)[1] for slot in range(self.size.streams))

    def given(self) -> int:
        """Return how many records the senders have given to their clients by now."""
        return sum(self.board.look(slot)[0] for slot in range(self.size.streams))

    def each(self) -> Iterator[tuple[str, int, int]]:
        """Yield each sender's job, rank, and how many records were acknowledged to it."""
        for slot in range(self.size.streams):
            number, rank = divmod(slot, self.size.ranks)
            yield job_of(number), rank, self.board.look(slot)[1]

    def owes(self, slot: int, given: int) -> bool:
        """Return whether one of the first `given` records of a sender that goes on is not acknowledged yet."""
        _, durable, state = self.board.look(slot)
        return durable < given and state is State.UNDER_WAY

    def gone(self) -> int:
        """Return how many senders did not come to their end."""
        return sum(self.board.look(slot)[2] is not State.ENDED for slot in range(self.size.streams))

    def diaries(self) -> Iterator[dict[str, Any]]:
        """Yield what the processes wrote that came to their end."""
        for path in sorted(self.folder.glob("diary-*.json")):
            yield json.loads(path.read_text())


@contextmanager
def sailing(size: Size, folder: Path, addresses: list[str], policy: SendPolicy) -> Iterator[Fleet]:
    """Give a fleet that does not send yet; at the end none of its processes is left."""
    board = Board(folder / "board", size.streams)
    fleet = Fleet(size, folder, addresses, policy, board)
    try:
        yield fleet
    finally:
        fleet.kill()
        board.close()
