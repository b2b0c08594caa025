"""Honest senders next to hostile ones, behind a way that falls silent, or under more load than is taken."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.chaos.fleet import CONTEXT
from benchmarks.chaos.ground import Ground
from benchmarks.chaos.hostile import CONTROL, Target, attack
from benchmarks.chaos.plan import Call

__all__ = ["HELD_S", "fall_silent", "overload", "with_hostile"]

ATTACKERS, MIN_ATTACKS = 2, 20
TURN_S, SETTLE_S = 1.5, 0.25  # what the daemon has left to do for clients that have just gone is theirs
FULL_NBYTES = 7 << 20  # of 16 MiB a token alone gets half; one message less than that is full
HELD_S = 10.0  # longer than a sender bears not to hear from the daemon
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Toll:
    """What was done to a daemon in a section of time, and the seconds of processor that it took from whom."""

    times: int = 0
    took_s: float = 0.0
    attackers_s: float = 0.0
    daemon_s: float = 0.0

    def __iadd__(self, other: Toll) -> Toll:
        self.times += other.times
        self.took_s += other.took_s
        self.attackers_s += other.attackers_s
        self.daemon_s += other.daemon_s
        return self


def with_hostile(name: str) -> Callable[[Ground], str]:
    """Return what has processes be hostile in one way, in turn with no one who is.

    The machine is never as fast as it was a while ago: what is compared is what is next to each other.
    """

    def disturb(ground: Ground) -> str:
        quiet, hostile = Toll(), Toll()
        while ground.again():
            quiet += rest(ground)
            hostile += be_hostile(ground, name)
        done = "did so" if name == CONTROL else "times"
        ground.say(tell_processors(quiet, hostile))
        return f"{hostile.times:,} {done}, by {ATTACKERS} processes, in {ground.times} turns with quiet"

    return disturb


def rest(ground: Ground) -> Toll:
    """Let everybody send undisturbed for a while."""
    with tolling(ground) as toll:
        ground.pass_time(TURN_S, ground.quiet)
        ground.await_given()
    return toll


def be_hostile(ground: Ground, name: str) -> Toll:
    """Have hostile processes for a while, and end them."""
    with tolling(ground) as toll, ground.noting(ground.troubled):
        with attacking(ground, name) as (processes, done):
            ground.wait_for(lambda: done.value >= MIN_ATTACKS or not ground.daemon.runs, "attacks")
            ground.pass_time(TURN_S)
            toll.attackers_s = sum(processor_s(process.pid) for process in processes)
            toll.times = done.value
        ground.pass_time(SETTLE_S)
    return toll


@contextmanager
def tolling(ground: Ground) -> Iterator[Toll]:
    """Give a toll that after the block has what it took from the daemon."""
    toll, began, before = Toll(), time.monotonic(), processor_s(ground.daemon.popen.pid)
    yield toll
    toll.daemon_s = max(0.0, processor_s(ground.daemon.popen.pid) - before)
    toll.took_s = time.monotonic() - began


def processor_s(process: int | None) -> float:
    """Return the seconds of processor that a process has had, 0 of one that is no more."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / TICKS


def tell_processors(quiet: Toll, hostile: Toll) -> str:
    """Return in words how many processors the daemon had, quiet and disturbed, and how many its attackers."""
    daemon = [toll.daemon_s / max(toll.took_s, 1 / TICKS) for toll in (quiet, hostile)]
    attackers = hostile.attackers_s / max(hostile.took_s, 1 / TICKS)
    return f"processors: daemon {daemon[0]:.2f}, disturbed {daemon[1]:.2f}; disturbers {attackers:.2f}"


@contextmanager
def attacking(ground: Ground, name: str) -> Iterator[tuple[list[BaseProcess], Any]]:
    """Have hostile processes in the block; gives them, and the count of what they did."""
    daemon, done = ground.daemon, CONTEXT.Value("q", 0)
    token = (daemon.folder / "hostile.token").read_text()
    target = Target(daemon.socket.removeprefix("unix:"), daemon.tcp, ":".join(map(str, daemon.metrics)), token)
    made = [(name, target, ground.chance.randrange(1 << 32), done) for _ in range(ATTACKERS)]
    processes: list[BaseProcess] = [CONTEXT.Process(target=attack, args=each, daemon=True) for each in made]
    try:
        for process in processes:
            process.start()
        yield processes, done
    finally:
        for process in processes:
            process.kill()
            process.join()


def fall_silent(ground: Ground) -> str:
    """Have what is connected over TCP hear nothing more, on either side, while no one closes the connection."""
    assert ground.proxy is not None
    links = 0
    while ground.again():
        links += ground.proxy.fall_silent()
        ground.pause(1)
    return f"{ground.times} x all links silent, {links} in all, none closed"


@dataclass
class Queues:
    """How full the daemon's queues were seen."""

    ground: Ground
    most_nbytes: float = 0.0

    def are_full(self) -> bool:
        """Look, and return whether nothing more goes into them."""
        nbytes = self.ground.daemon.gauge("deepprof_pipeline_queue_bytes")
        self.most_nbytes = max(self.most_nbytes, nbytes)
        return nbytes >= FULL_NBYTES


def overload(held_s: float) -> Callable[[Ground], str]:
    """Return what has all send as fast as they are let while the journal's disk hangs until the queues are full.

    The disk is what makes it sure: on a fast machine everything is mined as fast as this many processes can send it.
    The first time it hangs for `held_s` more."""

    def disturb(ground: Ground) -> str:
        queues = Queues(ground)
        ground.fleet.board.pace = math.inf
        while ground.again():
            with ground.plan.failing(Call.SYNC, 0, ground.daemon.store / "journal"):
                ground.wait_for(queues.are_full, "full queues")
                time.sleep(held_s if ground.times == 1 else 0.0)
        most = f"{queues.most_nbytes / (1 << 20):.1f} of the 8 MiB that one token may have"
        return f"all as fast as they are let, {ground.times} x a disk that hangs until the queues are full: {most}"

    return disturb
