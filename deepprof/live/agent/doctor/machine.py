"""What this machine has and lacks: our own library, the agent, its daemon and its spool, the GPUs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepprof.live.agent.answers import AgentStatus
from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError
from deepprof.live.agent.doctor.devices import examine_devices
from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.findings import DoctorFinding, DoctorReport, note, ok, wrong
from deepprof.live.agent.pacing import SPOOL_FULL
from deepprof.live.agent.summary import AWAY
from deepprof.plurals import counted

SHOWN = 5  # processes that were refused
REFUSED_ADVICE = "set DEEPPROF_RANK in its environment, or give its run another --job"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DoctorMachine:
    """What the doctor examines besides the machine's files.

    `ask` asks the agent at `socket`; `daemon` returns why the daemon at an address (None: the usual one) does not
    answer, None if it does, and raises PermissionError if this user may not connect to it; `library` is ours, None
    where it is not compiled; `search` are folders of Python packages.
    """

    socket: Path
    ask: Callable[[Path], AgentStatus]
    daemon: Callable[[str | None], str | None]
    library: Path | None
    hook: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    search: Sequence[str] = ()
    is_root: bool = False


def examine_machine(tree: FileTree, around: DoctorMachine) -> DoctorReport:
    """Return the report on this machine."""
    findings = list(examine_library(around.library, around.hook))
    findings += examine_agent(around)
    findings += examine_devices(tree, around.variables, around.search, is_root=around.is_root)
    return DoctorReport(tuple(findings))


def examine_library(library: Path | None, hook: Path) -> Iterator[DoctorFinding]:
    """Yield whether our library and our hook can be loaded into a process."""
    if sys.platform != "linux":
        yield wrong("platform", f"collectors run on Linux, and this is {sys.platform}", "run the job on Linux")
        return
    if library is None:
        yield wrong("library", "it is not compiled", "install a C compiler, then deepprof again; or use a wheel")
        return
    problem = _try_to_load(library)
    yield (
        wrong("library", problem, "install deepprof again on this machine") if problem else ok("library", f"{library}")
    )
    if not (hook / "sitecustomize.py").is_file():
        yield wrong("hook", f"{hook} has no sitecustomize.py", "install deepprof again")


def _try_to_load(library: Path) -> str | None:
    """Return why our library cannot be loaded, None where it can."""
    try:
        ctypes.CDLL(str(library)).deepprof_version  # noqa: B018
    except OSError as error:
        return str(error)
    except AttributeError:
        return f"{library} is another release's, or none of ours"
    return None


def examine_agent(around: DoctorMachine) -> Iterator[DoctorFinding]:
    """Yield the findings on the agent, and on the daemon that it sends to."""
    try:
        answer = around.ask(around.socket)
    except NotAnsweredError as error:
        yield judge_silence(around.socket, error)
        yield _judge_daemon(around)
        return
    known = count(len(answer.processes), "process", "processes")
    yield ok("agent", f"pid {answer.pid} at {around.socket} knows {known}")
    yield judge_uplink(answer, around)
    yield _judge_spool(answer)
    for source in answer.sources or ():
        yield from _describe_source(source)
    over = {each.pid for each in answer.processes if each.ended}
    over -= {each.pid for each in answer.processes if not each.ended}
    for refusal in answer.refused[:SHOWN]:
        judge = note if refusal.pid in over else wrong
        yield judge(f"process {refusal.pid}", f"refused: {refusal.why}", REFUSED_ADVICE)


def _describe_source(source: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    """Yield the findings on a source next to the processes: PyTorch's windows, a file that is followed, reports."""
    what = f"{source.get('source', 'source')} {source.get('path') or source.get('address') or ''}"
    processes = source.get("processes")
    notices = source.get("notices") or ()
    yield from (note(what, f"{text}") for text in notices)
    if not notices:
        yield ok(what, counted(processes, "process", "processes") if isinstance(processes, int) else "followed")


def judge_silence(socket: Path, error: NotAnsweredError) -> DoctorFinding:
    """Return the finding on an agent that gave no answer."""
    if error.why is NoAnswerReason.ABSENT:
        return note("agent", f"none at {socket}", "deepprof run starts one")
    if error.why is NoAnswerReason.FORBIDDEN:
        return wrong("agent", f"{socket}: {error}", "start it with --for-all, or use one of your own (--agent)")
    return wrong("agent", f"{socket}: {error}", "end what listens there, or choose another socket (--agent)")


def _judge_daemon(around: DoctorMachine) -> DoctorFinding:
    try:
        problem = around.daemon(None)
    except PermissionError as error:
        return wrong("daemon", f"{error.filename} may not be used by this user", "join the group that it is open to")
    if problem is None:
        return ok("daemon", "it answers")
    return wrong("daemon", problem, "start it: deepprof serve; or name another: DEEPPROF_DAEMON")


def judge_uplink(answer: AgentStatus, around: DoctorMachine) -> DoctorFinding:
    """Return the finding on the agent's uplink to the daemon; an agent with nothing to send has not tried it."""
    if answer.connected:
        return ok("daemon", f"{answer.to} takes what the agent sends")
    try:
        problem = around.daemon(answer.to)
    except PermissionError:
        if not answer.trouble:
            return note("daemon", f"{answer.to} may not be looked at by this user; the agent has had nothing to send")
        problem = answer.trouble
    if problem and answer.trouble and answer.trouble not in AWAY and (advice := _own_advice(answer)):
        return wrong("daemon", f"{answer.to}: {answer.trouble}", advice)
    if problem:
        meanwhile = "start it (deepprof serve); what comes meanwhile waits on disk"
        return wrong("daemon", f"{answer.to}: {answer.trouble}" if answer.trouble else problem, meanwhile)
    return _judge_reachable(answer)


def _judge_reachable(answer: AgentStatus) -> DoctorFinding:
    """Return the finding on a daemon that answers us now; the problem of the agent's last try may be over."""
    if not answer.trouble:
        return ok("daemon", f"{answer.to} answers")
    if answer.trouble in AWAY:
        why = f"{answer.to} answers now; when the agent tried last, {answer.trouble}"
        return note("daemon", why, "it tries again within some seconds")
    return wrong("daemon", f"{answer.to}: {answer.trouble}", _own_advice(answer))


def _own_advice(answer: AgentStatus) -> str:
    """Return the advice in the agent's own problem text, empty for none."""
    return (answer.problem or "").partition("; ")[2]


def _judge_spool(answer: AgentStatus) -> DoctorFinding:
    """Return the finding whether there is space on disk for waiting records."""
    spool = answer.spool
    least = "less than 1" if 0 < spool.nbytes < MIB else f"{spool.nbytes / MIB:,.0f}"
    room = f"{least} of {spool.limit_nbytes / MIB:,.0f} MiB wait on disk"
    if spool.limit_nbytes and spool.nbytes >= spool.limit_nbytes:
        return wrong("spool", f"full: {room}, and what comes is lost", "start the daemon, or raise --spool-limit")
    if any(each.reason == SPOOL_FULL and each.level != "full" and not each.ended for each in answer.processes):
        why = f"{room}; the agent had no room for records, and collects less"
        return wrong("spool", why, "make room on its disk, start the daemon, or raise --spool-limit")
    return ok("spool", room)


def count(number: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many}"
