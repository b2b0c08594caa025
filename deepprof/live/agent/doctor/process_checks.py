"""Why a process sends no records: how it was started, what is loaded into it, which files of ours it can see."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepprof.live.agent.answers import UNKNOWN, AgentStatus, ProcessStatus, RecordAccount
from deepprof.live.agent.asking import NotAnsweredError
from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.findings import PROCESS, CheckState, DoctorFinding, DoctorReport, note, ok, wrong
from deepprof.live.agent.doctor.inspected_process import InspectedProcess, read_suspect
from deepprof.live.agent.doctor.loading import examine_libraries
from deepprof.live.agent.doctor.machine import REFUSED_ADVICE, DoctorMachine, judge_silence, judge_uplink
from deepprof.live.agent.injection import INJECTIONS
from deepprof.live.agent.summary import REFUSED, list_missing
from deepprof.plurals import counted

AGAIN = "end it, and start it with: deepprof run -- COMMAND"
CHILDREN = 8  # pids shown in a line


def examine_process(tree: FileTree, around: DoctorMachine, pid: int) -> DoctorReport:
    """Return the report on the process `pid`."""
    suspect, problem = read_suspect(tree, pid, is_root=around.is_root)
    if suspect is None or problem:
        return DoctorReport((problem or _unknown(pid),), pid)
    findings = [ok(PROCESS, f"{pid}: {' '.join(suspect.command)[:100] or suspect.name}")]
    answer = _ask_agent(around, suspect)
    known = _list_known(answer, suspect) if isinstance(answer, AgentStatus) else []
    findings += _examine_start(suspect, known)
    view = list(_examine_view(tree, suspect)) if suspect.socket else []
    findings += [*view, *examine_libraries(suspect)]
    if not known and any(each.state is CheckState.WRONG for each in view):
        return DoctorReport(tuple(findings), pid)  # that is why the agent has nothing of it
    findings += _examine_words(around, answer, known, suspect) if isinstance(answer, AgentStatus) else [answer]
    return DoctorReport(tuple(findings), pid)


def _unknown(pid: int) -> DoctorFinding:
    return wrong(
        "process", f"there is no process {pid} here", "look with: ps; a container's processes have other numbers"
    )


def _ask_agent(around: DoctorMachine, suspect: InspectedProcess) -> AgentStatus | DoctorFinding:
    """Return the answer of the agent that the process was started with, else of this machine's agent."""
    socket = Path(suspect.socket) if suspect.socket else around.socket
    try:
        return around.ask(socket)
    except NotAnsweredError as error:
        return judge_silence(socket, error)


def _list_known(answer: AgentStatus, suspect: InspectedProcess) -> list[ProcessStatus]:
    """Return what the agent has of the process: one entry for every collector in it, or those that have ended."""
    mine = [each for each in answer.processes if suspect.is_meant(each.pid, each.command)]
    over = [each for each in mine if suspect.has_ours and suspect.has_said(each.command)]  # pids are reused
    return [each for each in mine if not each.ended] or over


def _examine_start(suspect: InspectedProcess, known: Sequence[ProcessStatus]) -> Iterator[DoctorFinding]:
    """Yield whether the process was started so that it can be collected from."""
    variables = suspect.variables
    if not suspect.socket:
        if known:
            yield ok("started", f"without deepprof run; it speaks to the agent by itself ({known[0].collector})")
        elif variables.get("KINETO_USE_DAEMON") == "1":
            why = "KINETO_USE_DAEMON=1 was set, nothing else: only PyTorch's own windows can be had"
            yield note("started", why, "deepprof agent --kineto asks for them")
        elif suspect.watched:
            why = "it has started what is collected from, and is not collected from itself"
            yield note("started", why, f"ask for that: {_name_children(suspect.watched)}")
        else:
            why = "without deepprof run: a library cannot be added to a process later"
            yield wrong("started", why, AGAIN)
        return
    yield ok("started", f"with deepprof run, job {variables.get('DEEPPROF_JOB', '')}")
    ours = variables.get("DEEPPROF_INJECT", "")
    for name, cost in INJECTIONS.items():
        if variables.get(name, ours) != ours:
            why = f"it is {variables[name]}, another profiler's: {cost}"
            yield wrong(name, why, "start it without the other profiler")
    yield from _examine_python(suspect)


def _examine_python(suspect: InspectedProcess) -> Iterator[DoctorFinding]:
    """Yield whether a Python process has run our hook, without which a CPU's operators are not collected."""
    flag = suspect.python_flag
    if flag:
        why = f"-{flag} makes Python ignore PYTHONPATH or sitecustomize: PyTorch's operators are not collected"
        yield note("hook", why, "start Python without it; kernels of a GPU come all the same")
    elif suspect.is_python and not suspect.has_hook:
        yield note(
            "hook", "PYTHONPATH was changed on the way: PyTorch's operators are not collected", "keep what it has"
        )


def _examine_view(tree: FileTree, suspect: InspectedProcess) -> Iterator[DoctorFinding]:
    """Yield whether the process can see our socket and our library; in a container it may not."""
    library = suspect.variables.get("DEEPPROF_INJECT", "")
    for what, path in (("socket", suspect.socket), ("library file", library)):
        inside = f"/proc/{suspect.pid}/root{path}"
        if path and suspect.root_readable and not tree.exists(inside):
            where = "in its container" if "mnt" in suspect.foreign else "there"
            yield wrong(what, f"{path} is not {where}", f"mount {Path(path).parent} into it at the same place")
        elif "mnt" in suspect.foreign and what == "socket" and not _same_file(tree, inside, path):
            yield wrong(what, f"{path} in its container is not this machine's", "mount this machine's folder there")
    if suspect.foreign:
        yield note(
            "namespaces", f"its own: {', '.join(suspect.foreign)}", "its numbers of processes may differ from ours"
        )


def _same_file(tree: FileTree, one: str, other: str) -> bool:
    """Whether two names are one file; True where that cannot be read."""
    try:
        return os.path.samestat(tree.at(one).stat(), tree.at(other).stat())
    except OSError:
        return True


def _examine_words(
    around: DoctorMachine, answer: AgentStatus, known: Sequence[ProcessStatus], suspect: InspectedProcess
) -> Iterator[DoctorFinding]:
    refused = [each.why for each in answer.refused if each.pid == suspect.pid]
    if refused:
        yield wrong("agent", f"it refused the process: {refused[-1]}", REFUSED_ADVICE)
    for each in known:
        yield from _describe_known(each)
    if known:
        yield judge_uplink(answer, around)
    elif not refused:
        yield _judge_unknown(answer, suspect)


def _describe_known(process: ProcessStatus) -> Iterator[DoctorFinding]:
    place = f"job {process.job}, rank {'not yet known' if process.rank is None else process.rank}"
    if process.records:
        yield from _describe_records(process, place)
    elif process.ended:
        yield note("records", f"none ({place})", "it ran no kernel and no operator")
    else:
        yield note("records", f"none yet ({place})", "it has run no kernel and no operator, or collecting is paused")
    if process.ended:
        yield note("collector", "it has said that nothing more comes", "the process ends, or has stopped collecting")
    elif process.level in {0, "OFF", "off"}:
        yield note("level", f"collecting is off ({process.reason})", "it goes on by itself; --overhead allows more")
    for notice in process.notices:
        yield note(f"{process.collector or 'collector'} says", notice.text)


def _describe_records(process: ProcessStatus, place: str) -> Iterator[DoctorFinding]:
    """Yield what became of a process's records, in total and by kind."""
    books = process.books
    kept = "" if books.kept is None else f", {sum(books.kept.values()):,} kept by the daemon"
    missing = ", ".join(list_missing(books.reasons, process.refusal)) or "0 lost"
    why = f"{place}: {counted(sum(books.made.values()), 'record')}{kept}, {missing}, {books.waiting:,} on their way"
    if REFUSED in books.missing:
        yield note("records", why, "the daemon's log says more; its limits may be too low for this agent")
    else:
        yield ok("records", why)
    kinds = dict.fromkeys([*books.made, *(kind for of in books.missing.values() for kind in of)])
    if list(kinds) != [UNKNOWN]:
        yield ok("records by kind", "; ".join(_describe_kind(books, kind) for kind in kinds))


def _describe_kind(books: RecordAccount, kind: str) -> str:
    kept = [] if books.kept is None else [f"{books.kept.get(kind, 0):,} kept"]
    missing = list_missing({reason: kinds.get(kind, 0) for reason, kinds in books.missing.items()})
    return ", ".join([f"{kind} {books.made.get(kind, 0):,} made", *kept, *missing])


def _judge_unknown(answer: AgentStatus, suspect: InspectedProcess) -> DoctorFinding:
    if suspect.has_ours:
        why = f"process {answer.pid} knows nothing of it, though the library is loaded"
        return wrong("agent", why, "see whether its user may use the socket; look again in some seconds")
    children = _name_children(suspect.watched or suspect.children)
    advice = f"ask for its children: {children}" if children else "nothing is loaded into it that could speak"
    return note("agent", f"process {answer.pid} knows nothing of it", advice)


def _name_children(children: Sequence[int]) -> str:
    """Return the first pids, as many as fit into a line."""
    return ", ".join(str(child) for child in children[:CHILDREN])
