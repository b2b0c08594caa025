"""`deepprof run`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import UsageError
from deepprof.commands.arguments import quote
from deepprof.commands.daemons import add_credentials
from deepprof.commands.streams import say

if TYPE_CHECKING:
    from collections.abc import Collection

    from deepprof.live.agent.answers import AgentStatus
    from deepprof.live.agent.injection import InjectionPlan
    from deepprof.live.agent.launching import AgentSupervisor

DRAIN_S, LONGEST_DRAIN_S = 10.0, 3600.0
CREDENTIALS = ("token_file", "ca", "cert", "key")
PATH_NBYTES = 107  # of a socket's address


class Run:
    """Run a training command and watch it, without changing it.

    COMMAND keeps its terminal, its output, its signals and its exit code; `--` before it is needed only where it
    begins with a dash. Kernels and copies are taken from the GPU's driver, and on a machine without a GPU PyTorch's
    operators represent them. They go to the agent of this machine, which is started where there is none, and on to
    the daemon. Where nothing can be collected COMMAND runs all the same, and one line states why.

    Exit: COMMAND's own, also by a signal; 126 and 127 where it cannot be started, 2 for arguments that make no sense.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        parser.usage = "deepprof run [OPTION ...] [--] COMMAND ..."
        add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="what to run, with its arguments")
        add("--job", metavar="NAME", type=parse_job, help="name of the job (default: the scheduler's, else the script)")
        where = "the daemon, unix:PATH or HOST:PORT (default: DEEPPROF_DAEMON or this machine's)"
        add("--to", metavar="ADDRESS", help=where)
        add(
            "--agent", metavar="SOCKET", type=parse_socket, help="the agent's socket (default: DEEPPROF_SOCKET or ours)"
        )
        add("--context", action="store_true", help="collect operators and NVTX ranges too where a GPU is")
        kinds = ("off", "operators", "python", "native")
        help_text = "add up operators by what called them, in the job (default: off)"
        add("--contexts", choices=kinds, default="off", help=help_text)
        add("--steps", action="store_true", help="mark the optimizers' steps")
        add("--memory", action="store_true", help="collect what is in use on GPUs around the optimizers' steps")
        add("--kineto", action="store_true", help="let the agent ask PyTorch for windows (Kineto on demand)")
        add(
            "--graphs", choices=("launches", "nodes"), help="what of a CUDA graph is a record: each launch or each node"
        )
        add("--drain", metavar="S", type=parse_drain, default=DRAIN_S, help="wait so long for the daemon (default 10)")
        add("--quiet", action="store_true", help="no line on what was collected")
        add_credentials(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return its exit code."""
        from deepprof.live.agent.running import CannotRunError, deaf_threads

        command = read_command(args.command)
        with deaf_threads():
            import numpy as np  # noqa: F401  # BLAS starts threads
        if args.to:
            _check_address(args.to)
        try:
            return _run_watched(command, args)
        except CannotRunError as error:
            _complain(str(error))
            return error.status


def _run_watched(command: list[str], args: argparse.Namespace) -> int:
    """Run `command` with collectors in it, or unchanged where there can be none."""
    from deepprof.live.agent.injection import inject
    from deepprof.live.agent.launching import NoAgentError
    from deepprof.live.agent.running import leave, replace, signals_blocked, spawn, wait

    plan = _make_plan(command, args)
    try:
        if plan is None:
            raise NoAgentError(_explain_platform())
        supervisor = make_supervisor(plan, args)
        answer = supervisor.find()
    except NoAgentError as error:
        _complain(f"nothing is collected: {error}")
        replace(command, os.environ)
    environ, remarks = inject(os.environ, plan)
    for remark in [*remarks, *_remark_on(answer, args.to, os.environ.get("DEEPPROF_DAEMON"))]:
        _complain(remark)
    before = {process.session for process in answer.processes} if answer else set[str]()
    with signals_blocked() as mask:
        status = wait(spawn(command, environ, mask), supervisor.check)
        _sum_up(supervisor, plan, before, args, answer.began_unix_ns if answer else None)
        return leave(status)


def _make_plan(command: list[str], args: argparse.Namespace) -> InjectionPlan | None:
    """Return what is injected, None where DeepProf's library is missing."""
    from deepprof.collectors.live import __file__ as live
    from deepprof.collectors.live.identity import find_socket
    from deepprof.collectors.live.inject import find_library
    from deepprof.live.agent.injection import InjectionPlan

    library = find_library() if sys.platform == "linux" else None
    if library is None:
        return None
    return InjectionPlan(
        library=library.absolute(),
        hook=Path(live).parent.absolute() / "hook",
        socket=(args.agent or find_socket()).absolute(),
        job=_choose_job(args.job, command),
        context=args.context,
        contexts=args.contexts,
        steps=args.steps,
        memory=args.memory,
        kineto=args.kineto,
        graphs=args.graphs,
        quiet=args.quiet,
        run=f"{os.getpid()}-{time.time_ns()}",
    )


def make_supervisor(plan: InjectionPlan, args: argparse.Namespace) -> AgentSupervisor:
    """Return the supervisor that keeps the agent alive."""
    from deepprof.live.agent.injection import strip
    from deepprof.live.agent.launching import AgentSupervisor

    shown = {"to": args.to} | {name: getattr(args, name) for name in CREDENTIALS}
    options = [word for name, text in shown.items() if text for word in (f"--{name.replace('_', '-')}", text)]
    options += ["--kineto"] if args.kineto else []
    environ = strip(os.environ, plan.library, plan.hook)
    if args.kineto:
        environ.setdefault("KINETO_IPC_SOCKET_DIR", str(plan.socket.parent))
    return AgentSupervisor(plan.socket, options, environ, say=_complain)


def _explain_platform() -> str:
    """Return why DeepProf's library is missing."""
    if sys.platform != "linux":
        return "collectors run on Linux alone"
    return "DeepProf's library is not compiled; install it where there is a C compiler, or from a wheel"


def _choose_job(name: str | None, command: list[str]) -> str:
    """Return the job's name: `name`, else that in the environment, else one made of the script and the minute."""
    from deepprof.live.agent.job_names import name_job
    from deepprof.live.agent.rank_places import find_place

    said = os.environ.get("DEEPPROF_JOB")
    job = name or find_place(os.environ).job or name_job(command, time.time())
    if said and not name and job != said:
        _complain(f"DEEPPROF_JOB={quote(said)} is no name of a job: it is called {job}")
    return job


def _remark_on(answer: AgentStatus | None, to: str | None, said: str | None) -> list[str]:
    """Return a remark on an agent that is late, or one that was running already and sends to another daemon.

    `to` is the address given as an option, and takes precedence over `said`, the one in the environment.
    """
    if answer is None:
        return ["the agent is slow to start; the first records may be missing"]
    asked = to or said
    if not asked or answer.to in {"", asked}:
        return []
    try:
        if answer.to == _check_address(asked):
            return []
    except UsageError as error:
        return [f"DEEPPROF_DAEMON: {error}; the agent sends to {answer.to}"]
    return [
        f"the agent at {answer.socket} sends to {answer.to}, not to {asked}; give one of its own with --agent SOCKET"
    ]


def _check_address(text: str) -> str:
    """Return the address of a daemon as the agent writes it. Raises `UsageError`."""
    from deepprof.live.agent.running import deaf_threads

    with deaf_threads():
        from deepprof.live.wire.addresses import parse_address

    return str(parse_address(text))


def _find_usual() -> str | None:
    """Return the address that a command uses by default, None where the one in the environment is invalid."""
    from deepprof.live.agent.running import deaf_threads

    with deaf_threads():
        from deepprof.live.wire.addresses import default_address

    said = os.environ.get("DEEPPROF_DAEMON")
    try:
        return _check_address(said) if said else str(default_address(os.environ))
    except UsageError:
        return None


def _sum_up(
    supervisor: AgentSupervisor,
    plan: InjectionPlan,
    before: Collection[str],
    args: argparse.Namespace,
    since_unix_ns: int | None,
) -> None:
    """Wait until the daemon has everything, and print what arrived; call it with signals blocked.

    A signal to end ends the wait. `since_unix_ns` is the time when the agent that the command found began.
    """
    from deepprof.live.agent.asking import NotAnsweredError
    from deepprof.live.agent.draining import drain
    from deepprof.live.agent.remaining import find_remaining
    from deepprof.live.agent.summary import FinishedCommand, describe

    job = plan.job
    try:
        answer, processes, account = drain(supervisor.socket, job, before, args.drain)
    except NotAnsweredError as error:
        _complain(f"job {job}: {supervisor.socket}: {error}; what it had taken is on disk")
        return
    if not args.quiet:
        going = find_remaining(job, supervisor.socket, plan.run)
        _complain(
            describe(answer, FinishedCommand(job, args.to, since_unix_ns, going, _find_usual()), processes, account)
        )


def read_command(words: list[str], by: str = "run") -> list[str]:
    """Return the command without the `--` before it."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command or not command[0]:
        raise UsageError(f"no command to run; see deepprof {by} --help")
    return command


def parse_job(text: str) -> str:
    """Return the name of a job that the daemon accepts."""
    from deepprof.live.agent.job_names import NAME_CHARS, is_name

    if not is_name(text):
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is not 1 to {NAME_CHARS} letters, digits, and -_.:/ in between"
        )
    return text


def parse_socket(text: str) -> Path:
    """Return the path of a socket, given with or without `unix:` before it."""
    path = Path(text.removeprefix("unix:")).absolute()
    if not text.removeprefix("unix:") or not str(path).isprintable() or len(os.fsencode(path)) > PATH_NBYTES:
        raise argparse.ArgumentTypeError(f"{quote(text)} is no path of a socket, {PATH_NBYTES} bytes at most")
    if path.exists() and not path.is_socket():
        raise argparse.ArgumentTypeError(f"{quote(text)} is there and no socket")
    return path


def parse_drain(text: str) -> float:
    """Return a number of seconds, 0 for no wait."""
    whole = text.replace(".", "", 1)
    if not (whole.isascii() and whole.isdecimal() and len(whole) <= 9 and float(text) <= LONGEST_DRAIN_S):
        raise argparse.ArgumentTypeError(f"{quote(text)} is no number of seconds from 0 to {LONGEST_DRAIN_S:,.0f}")
    return float(text)


def _complain(text: str) -> None:
    """Print a line of DeepProf's own next to the command's."""
    say(f"deepprof: {text}")
