"""Processes that are killed, stopped or paused."""

from __future__ import annotations

import os
import signal

from benchmarks.chaos.ground import Ground

__all__ = ["kill_daemon", "kill_senders", "pause_daemon", "stop_daemon"]


def kill_daemon(ground: Ground) -> str:
    """Kill the daemon (SIGKILL) at any moment, and start it again."""
    while ground.again():
        ground.pause(0.5)
        ground.daemon.kill()
        ground.daemon.start()
    return f"{ground.times} x kill -9, started again"


def stop_daemon(ground: Ground) -> str:
    """Stop the daemon (SIGTERM), and start it again."""
    codes = list[int]()
    while ground.again():
        ground.pause(0.5)
        codes.append(ground.daemon.stop())
        ground.daemon.start()
    return f"{ground.times} x SIGTERM, started again; exit codes {', '.join(map(str, sorted(set(codes))))}"


def pause_daemon(ground: Ground) -> str:
    """Stop the daemon's process in its track, and let it go on."""
    while ground.again():
        os.kill(ground.daemon.popen.pid, signal.SIGSTOP)
        ground.pause(3)
        os.kill(ground.daemon.popen.pid, signal.SIGCONT)
    return f"{ground.times} x SIGSTOP for up to 3 s, then SIGCONT"


def kill_senders(ground: Ground) -> str:
    """Kill a sender's process, and start it again."""
    while ground.again():
        ground.pause(0.3)
        ground.fleet.replace(ground.chance.randrange(ground.fleet.size.senders))
    return f"{ground.times} x kill -9 of a sender, started again"
