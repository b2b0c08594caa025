"""Answers the requests of processes under KINETO_USE_DAEMON=1."""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from deepprof.live.agent.job_names import name_job
from deepprof.live.agent.kineto.messages import (
    DATAGRAM_NBYTES,
    MessageError,
    ProcessRegistration,
    make_answer,
    make_count,
    read_message,
)
from deepprof.live.agent.kineto.processes import KinetoProcess, KinetoProcesses, TraceWindow
from deepprof.live.agent.kineto.schedule import WindowSchedule, make_config
from deepprof.live.agent.kineto.window_folder import WindowFolder
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.client.retrying import Clock

DATAGRAMS = 256  # read at one go: the agent has other work too
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as the kernel reports them
GIVE_UP_S = 300.0  # after a window's end: a busy process may write its file for minutes
# The same after a process reports that it could begin another one: Kineto drops a request if its thread wakes too late
# to warm up, and reports that only in its own log. Not at once: the report may be an old one.
DROPPED_S = 10.0


@dataclass(frozen=True, slots=True)
class KinetoHandler:
    """Answers at the socket: asks each process for a window now and then. `job` is as in `KinetoSource`."""

    processes: KinetoProcesses
    folder: WindowFolder
    schedule: WindowSchedule
    job: str | None
    clock: Clock
    unix_s: Callable[[], float]
    notices: NoticeLog
    counts: Counter[str]

    def hear(self, endpoint: socket.socket) -> None:
        """Read the datagrams that have come, and answer them."""
        for _ in range(DATAGRAMS):
            try:
                data, extra, flags, peer = endpoint.recvmsg(DATAGRAM_NBYTES, socket.CMSG_SPACE(CREDENTIALS.size))
            except BlockingIOError:
                return
            except OSError:
                self.counts["unreadable"] += 1
                return
            answer = None if flags & socket.MSG_TRUNC else self.answer(data, read_credentials(extra))
            self.counts["refused"] += answer is None
            if answer is not None and peer:
                self.reply(endpoint, answer, peer)

    def reply(self, endpoint: socket.socket, answer: bytes, peer: str) -> None:
        """Send an answer; a process that is gone, or does not read, gets none."""
        try:
            endpoint.sendto(answer, socket.MSG_DONTWAIT, peer)
        except OSError:
            self.counts["unanswered"] += 1

    def answer(self, data: bytes, sender: tuple[int, int]) -> bytes | None:
        """Return the answer to `sender` (pid, uid); None if the sender or the datagram is refused."""
        pid, uid = sender
        if uid != os.geteuid():  # we could not read its windows
            self.notices.say(f"Kineto of process {pid} is not collected: it runs as user {uid}, not as the agent's")
            return None
        try:
            message = read_message(data)
        except MessageError:
            return None
        if message is None:
            return None
        process = self.find(pid or message.pid)  # the kernel's pid; 0 where it has none for it here
        if isinstance(message, ProcessRegistration):
            return make_count(len(self.processes))
        if process and process.window:
            self.follow(process.window, ready=message.ready)
        return make_answer(self.ask_for(process) if process and message.ready else "")

    def find(self, pid: int) -> KinetoProcess | None:
        """Return the process of a pid, None if there are too many."""
        process = self.processes.hear(pid, self.clock.now_s())
        if process is None:
            self.notices.say(f"more than {len(self.processes)} processes ask for Kineto's windows: others get none")
        elif not process.job:
            process.job = self.name(process)
        return process

    def name(self, process: KinetoProcess) -> str:
        """Return a process's job: its environment's, ours, that of others with the same command, or the command's."""
        alike = (other.job for other in self.processes if other.command == process.command and other.job)
        return process.place.job or self.job or next(alike, None) or name_job(process.command, self.unix_s())

    def follow(self, window: TraceWindow, *, ready: bool) -> None:
        """Set how long a window's file may still come, after a report of its process."""
        now_s = self.clock.now_s()
        if now_s > window.end_s:
            window.limit_s = min(window.limit_s, now_s + DROPPED_S) if ready else window.end_s + GIVE_UP_S

    def ask_for(self, process: KinetoProcess) -> str:
        """Return the configuration of a window if one is due, else nothing."""
        now_s = self.unix_s()
        start_s = self.schedule.next_start_s(now_s, process.last_start_s)
        if start_s is None or process.window is not None or process.refused or self.processes.is_other(process):
            return ""
        token, ahead_s = self.folder.new_token(), start_s - now_s
        end_s = self.clock.now_s() + ahead_s + self.schedule.window_ms / 1000
        process.window, process.last_start_s = TraceWindow(token, end_s, end_s + GIVE_UP_S), start_s
        self.counts["asked"] += 1
        return make_config(self.folder.target(token), start_s, self.schedule)


def read_credentials(extra: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return the pid and the uid of a datagram's sender, as the kernel reports them; uid -1 where it does not."""
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= CREDENTIALS.size:
            pid, uid, _ = CREDENTIALS.unpack_from(data)
            return pid, uid
    return 0, -1
