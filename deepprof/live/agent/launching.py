"""Finds or starts the agent of a node, and starts it again while a command needs it."""

from __future__ import annotations

import fcntl
import os
import socket as sockets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from weakref import finalize

from deepprof.collectors.errors import escaped
from deepprof.live.agent.answers import AgentStatus
from deepprof.live.agent.asking import PATIENCE_S, NoAnswerReason, NotAnsweredError, is_held, is_there, sit
from deepprof.ownership import find_fault

START_S, POLL_S = 5.0, 0.02
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
CALM_S = 60.0  # an agent that ran so long did not end because of how it was started
GLANCE_S = 0.2  # for an answer while the command runs, whose signals wait meanwhile
LOOK_S = 5.0  # between checks of an agent that another run has started
SYSTEM = Path("/run/deepprof")  # the system starts and restarts the agent here
LOG_NBYTES, LAST_NBYTES = 1 << 20, 4096
STDERR = 2
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class NoAgentError(Exception):
    """There is no agent, and none could be started; the text states why."""


class AgentSupervisor:
    """Keeps an agent listening at a socket. `options` are those of `deepprof agent`; `say` takes a line for people.

    The agent is a child in its own session, ends by itself when it has nothing to do, and writes its log next to
    the socket. Of many runs at once one starts it, and the others wait for that.
    """

    program: ClassVar[Sequence[str]] = (sys.executable, "-P", "-m", "deepprof")  # -P: no module from the job's folder

    def __init__(
        self,
        socket: Path,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        *,
        say: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.socket, self.say, self.clock = socket, say, clock
        self.command = [*self.program, "agent", "--socket", str(socket), *options, "--until-idle"]
        self.environ = dict(os.environ if environ is None else environ)
        self.pid: int | None = None
        self.log_from = 0
        self.started_s = self.next_s = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.said = False
        self.status: int | None = None
        self.lease: sockets.socket | None = None  # our connection: an agent that has one does not end by itself
        self.rise: Callable[[], object] = lambda: None  # closes the lease

    @property
    def log(self) -> Path:
        """The agent's log file."""
        return self.socket.with_suffix(".log")

    def find(self, patience_s: float = START_S) -> AgentStatus | None:
        """Return the agent's answer, after starting an agent if there is none. Raises `NoAgentError`.

        None if one is being started and has not answered after `patience_s`: collectors wait for it.
        """
        until_s = self.clock() + patience_s
        answer = self.ask()
        if answer is not None:
            return answer
        try:
            with self.only_starter(until_s):
                return self.wait_for_answer(until_s)
        except BlockingIOError:  # another run starts one
            return None
        except OSError as error:
            raise NoAgentError(f"{error.filename or self.socket}: {error.strerror or error}") from error

    def ask(self, patience_s: float = PATIENCE_S) -> AgentStatus | None:
        """Return the agent's answer, None if none listens. Raises `NoAgentError`."""
        try:
            lease, answer = sit(self.socket, patience_s)
        except NotAnsweredError as error:
            if error.why in {NoAnswerReason.ABSENT, NoAnswerReason.LEFT}:
                return None
            raise NoAgentError(f"{self.socket}: {error}") from error
        self.rise()
        self.lease, self.rise = lease, finalize(self, lease.close)
        return answer

    def wait_for_answer(self, until_s: float) -> AgentStatus | None:
        """Start an agent unless another run has, and return its answer. Raises `NoAgentError`, OSError."""
        while (answer := self.ask()) is None:
            if self.pid is None:
                self.start()
            elif os.waitpid(self.pid, os.WNOHANG)[0]:
                self.pid = None
                raise NoAgentError(f"the agent ended as it started ({self.last_line()})")
            if self.clock() > until_s:
                return None
            time.sleep(POLL_S)
        return answer

    def check(self, ended: Mapping[int, int]) -> None:
        """Start the agent again if it has ended; called repeatedly, and never waits for it.

        `ended` are children that were reaped since the last call.
        """
        now_s = self.clock()
        if self.pid is not None and self.pid in ended:
            self.status = ended[self.pid]
            self.pid = None
            self.pause_s = FIRST_PAUSE_S if now_s - self.started_s > CALM_S else self.pause_s
        if self.pid is not None or now_s < self.next_s or self.socket.parent == SYSTEM:
            return
        if self.lease is not None and is_held(self.lease):
            return
        if is_there(self.socket):
            self.next_s = now_s + LOOK_S
            with suppress(NoAgentError):
                self.ask(GLANCE_S)
            return
        self.next_s, self.pause_s = now_s + self.pause_s, min(self.pause_s * 2, LONGEST_PAUSE_S)
        self.restart()

    def restart(self) -> None:
        """Start the agent once more, and report it the first time."""
        reason = self.explain_end()
        try:
            with self.only_starter(self.clock()):
                self.start()
        except BlockingIOError:  # another run does it
            return
        except (OSError, NoAgentError) as error:
            reason = str(error)
        if not self.said and self.status != 0:  # 0: it had nothing to do, and ended as it should
            self.said = True
            self.say(f"the agent ended ({reason}) and is started again; what it had taken is on disk")

    def explain_end(self) -> str:
        """Return why the agent is gone, as far as its wait status and its last line show it."""
        if self.status is None:
            return "nobody listens any more"
        if os.WIFSIGNALED(self.status):
            return f"by signal {os.WTERMSIG(self.status)}"
        line = self.last_line()
        return f"with status {os.WEXITSTATUS(self.status)}" if line.startswith("{") else line  # the log, not a message

    def start(self) -> None:
        """Start the agent, with its output into the log. Raises OSError."""
        self.log_from = self.measure_log()
        files: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        files += [(os.POSIX_SPAWN_OPEN, 1, str(self.log), LOG_FLAGS, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
        files += [(os.POSIX_SPAWN_CLOSE, number) for number in _list_inherited()]
        self.pid = os.posix_spawn(
            self.command[0], self.command, self.environ, file_actions=files, setsid=True, setsigmask=[]
        )
        self.started_s = self.clock()

    def measure_log(self) -> int:
        """Return the size of the log, which is emptied first if it has become too long. Raises OSError."""
        log = os.open(self.log, LOG_FLAGS, 0o600)
        try:
            if os.fstat(log).st_size > LOG_NBYTES:
                os.ftruncate(log, 0)
            return os.fstat(log).st_size
        finally:
            os.close(log)

    def last_line(self) -> str:
        """Return the last line that the agent has written since it was started."""
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self.log_from, end - LAST_NBYTES))
                lines = log.read(LAST_NBYTES).decode("utf-8", "replace").split("\n")
        except OSError:
            return "it wrote nothing"
        said = [escaped(line.strip()) for line in lines if line.strip()]
        return said[-1].removeprefix("deepprof: ") if said else "it wrote nothing"

    @contextmanager
    def only_starter(self, until_s: float) -> Iterator[None]:
        """Make the socket's folder, and let no other run start an agent there.

        Raises BlockingIOError if another run still starts one at `until_s`, OSError, `NoAgentError`.
        """
        _prepare_folder(self.socket.parent)
        path = self.socket.with_suffix(".start")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while not take(lock):
                if self.clock() >= until_s:
                    raise BlockingIOError(f"another run holds {path}")
                time.sleep(POLL_S)
            yield
        finally:
            os.close(lock)


def _list_inherited() -> list[int]:
    """Return the files that the shell left open for the command: a reader at their other end waits until they close.

    The agent outlives the command, and must not hold them.
    """
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return [number for number in numbers if number > STDERR and _is_inheritable(number)]


def _is_inheritable(number: int) -> bool:
    """Whether a file stays open in a child."""
    try:
        return os.get_inheritable(number)
    except OSError:  # the descriptor that listed the others
        return False


def take(lock: int) -> bool:
    """Whether the lock could be taken now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prepare_folder(folder: Path) -> None:
    """Make the folder for us alone, or check that no other user writes to it. Raises OSError, `NoAgentError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fault := find_fault(folder.stat(), folder, "agent's socket"):
        raise NoAgentError("; ".join((f"{folder}: {fault[0]}", fault[1])))
