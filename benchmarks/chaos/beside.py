"""Honest senders beside hostile ones, behind a way that falls silent, or under more load than is mined."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.chaos.fleet import CONTEXT
from benchmarks.chaos.ground import Ground
from benchmarks.chaos.hostile import Target, attack

__all__ = ["fall_silent", "overload", "with_hostile"]

ATTACKERS, ENOUGH = 2, 20
SHARE_NBYTES = 7 << 20  # of 16 MiB a token alone gets half; one message less than that is full


def with_hostile(name: str) -> Callable[[Ground], str]:
    """Return what has processes be hostile in one way all the while."""

    def disturb(ground: Ground) -> str:
        with attacking(ground, name) as done:
            ground.wait_for(lambda: done.value >= ENOUGH, "attacks")
            while ground.again():
                ground.pause(0.5)
            return f"{done.value:,} times, by {ATTACKERS} processes"

    return disturb


@contextmanager
def attacking(ground: Ground, name: str) -> Iterator[Any]:
    """Have hostile processes in the block; gives the count of what they did."""
    daemon, done = ground.daemon, CONTEXT.Value("q", 0)
    token = (daemon.folder / "hostile.token").read_text()
    target = Target(daemon.socket.removeprefix("unix:"), daemon.port, daemon.metrics[1], token)
    made = [(name, target, ground.chance.randrange(1 << 32), done) for _ in range(ATTACKERS)]
    processes = [CONTEXT.Process(target=attack, args=each, daemon=True) for each in made]
    try:
        for process in processes:
            process.start()
        yield done
    finally:
        for process in processes:
            process.kill()
            process.join()


def fall_silent(ground: Ground) -> str:
    """Have what is connected over TCP hear nothing more, on either side, while nobody closes the connection."""
    assert ground.proxy is not None
    links = 0
    while ground.again():
        links += ground.proxy.fall_silent()
        ground.pause(1)
    return f"{ground.times} x all links silent, {links} in all, none closed"


def overload(ground: Ground) -> str:
    """Have all senders send as fast as they are let."""
    most = 0.0
    ground.fleet.board.pace = math.inf
    while ground.again():
        most = max(most, ground.daemon.gauge("deepprof_pipeline_queue_bytes"))
        time.sleep(0.2)
    full = "full for one token" if most >= SHARE_NBYTES else "not full: no back-pressure was seen"
    return f"all as fast as they are let; the queues held up to {most / (1 << 20):.1f} MiB, {full}"
