"""Runs a command as if we were not there: its terminal, its files, its signals, its exit.

The command is our child in our process group and session, so that a terminal's keys reach it by themselves. Signals
are blocked here and taken one by one with their sender: only so can a signal that was sent to us alone be passed on,
and one that the terminal sent to the whole group be ignored. A process that signals the whole group itself cannot be
distinguished from one that signals us only: the command then gets the signal twice.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

PASSED = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT]
REQUESTS = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}  # to end
# Signals that Python ignores and that a command expects to end it.
DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ]
BY_PROCESSES = 0  # the highest si_code of a signal that a process sent; the kernel's own, the terminal's, are above
TICK_S = 0.5
BROADCASTERS = {"slurmstepd"}  # it signals each process of a step separately: the command has got the signal already
SHELL = "/bin/sh"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells return them


class CannotRunError(Exception):
    """The command cannot be started; `status` is what a shell would exit with."""

    def __init__(self, problem: str, status: int) -> None:
        self.status = status
        super().__init__(problem)


@contextmanager
def deaf_threads() -> Iterator[None]:
    """Block all signals in threads that are started within, as libraries start some when they are loaded.

    A signal that the main thread blocks and does not take at once goes to any other thread, and would end us.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_blocked() -> Iterator[frozenset[int]]:
    """Keep the signals that are passed on for `wait` until the block ends; yields the mask that was before.

    Ignored signals, as SIGHUP under nohup, stay ignored by the command too and are not taken. Signals that come after
    the command has ended are dropped, and change no exit code.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the command's status would be lost
    taken = {each for each in PASSED if signal.getsignal(each) is not signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken | {signal.SIGCHLD})
    try:
        yield frozenset(before)
    finally:
        while signal.sigtimedwait(taken, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def spawn(command: Sequence[str], environ: Mapping[str, str], mask: frozenset[int]) -> int:
    """Start the command and return its pid; every file that we have open for it stays open. Raises `CannotRunError`."""
    options = {"setsigmask": mask, "setsigdef": DEFAULT}
    try:
        return os.posix_spawnp(command[0], list(command), environ, **options)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise explain(command[0], error) from error
        script = [SHELL, shutil.which(command[0]) or command[0], *command[1:]]  # a script without #!, as shells do
        return os.posix_spawn(script[0], script, environ, **options)  # type: ignore[arg-type]


def replace(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command. Raises `CannotRunError`."""
    for each in DEFAULT:
        signal.signal(each, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(environ))  # noqa: S606  # the user's own command
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise explain(command[0], error) from error
        os.execve(SHELL, [SHELL, shutil.which(command[0]) or command[0], *command[1:]], dict(environ))  # noqa: S606


def explain(name: str, error: OSError) -> CannotRunError:
    """Return the error of a command that does not start."""
    if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
        return CannotRunError(f"{name}: {error.strerror}", NOT_EXECUTABLE)
    if shutil.which(name):
        return CannotRunError(f"{name}: the interpreter that its first line names is not there", NOT_EXECUTABLE)
    here = os.sep not in name and Path(name).is_file()
    advice = f"; it is a file of this folder: python {name}, or ./{name}" if here else ""
    return CannotRunError(f"{name}: command not found{advice}", NOT_FOUND)


def wait(child: int, tick: Callable[[Mapping[int, int]], None]) -> int:
    """Pass signals on to `child` until it ends, and return its wait status.

    `tick` is called twice a second at least, with pid and wait status of other children that ended. Only within
    `signals_blocked`.
    """
    taken = signal.pthread_sigmask(signal.SIG_BLOCK, []) & {*PASSED, signal.SIGCHLD}
    while True:
        info = signal.sigtimedwait(taken, TICK_S)
        if info is not None and info.si_signo != signal.SIGCHLD:
            if is_for_us(info, child):
                with suppress(PermissionError):  # under sudo it is root's, and only root may signal it
                    os.kill(child, info.si_signo)  # not reaped yet: the pid is its own
            continue
        ended = dict(_reap())
        if child in ended:
            return ended[child]
        tick(ended)


def is_for_us(info: signal.struct_siginfo, child: int) -> bool:
    """Whether a signal was sent to us alone, so that the command has not got it."""
    if info.si_code > BY_PROCESSES or info.si_pid == child:
        return False
    return not info.si_pid or read_name(info.si_pid) not in BROADCASTERS  # 0: from outside of this container


def read_name(pid: int) -> str:
    """Return the name of a process, empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _reap() -> Iterator[tuple[int, int]]:
    """Yield pid and status of every child that ended; a container's first process inherits other children too."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def wait_for_request(seconds: float) -> bool:
    """Wait for `seconds`, or until a signal asks to end; return whether one did. Only within `signals_blocked`."""
    return signal.sigtimedwait(REQUESTS, seconds) is not None


def leave(status: int) -> int:
    """Return the exit code for a wait status, or end by the signal that ended the command, without a second core."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # the signal does not end a container's first process
