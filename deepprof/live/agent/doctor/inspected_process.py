"""A process as /proc shows it."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.findings import PROCESS, DoctorFinding, wrong

NAMESPACES = ("mnt", "pid", "user")  # a socket with a path needs the first only
PYTHON = re.compile(r"(.*/)?python[\d.]*t?d?")
UNSEEN = 0  # the pid that the kernel gives an agent in a container for a process outside of it
COMPARED = 200  # characters of a command line
KEEPS_OUT, TAKES_WORD = "IES", "WX"  # flags of Python that ignore PYTHONPATH or sitecustomize; flags that have a value


@dataclass(frozen=True, slots=True)
class InspectedProcess:
    """A process: how it was started, which files are mapped, in which of its namespaces it differs from us.

    `pids` are its pids, from our namespace's to its innermost one's. `maps` are the mapped files, without repetition.
    `watched` are those of its children that `deepprof run` has prepared.
    """

    pid: int
    name: str = ""
    command: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    maps: Sequence[str] = ()
    pids: Sequence[int] = ()
    foreign: Sequence[str] = ()
    children: Sequence[int] = ()
    watched: Sequence[int] = ()
    root_readable: bool = True

    @property
    def socket(self) -> str:
        """The agent's socket in its environment; empty for a process that was not started by us."""
        return self.variables.get("DEEPPROF_SOCKET", "") if self.variables.get("DEEPPROF_INJECT") else ""

    def is_meant(self, pid: int, command: str) -> bool:
        """Whether a process that reported this pid and command line to the agent is this one.

        In a container it reported the container's pid, which processes of other containers may have too.
        """
        return pid == self.pid or (pid in (*self.pids, UNSEEN) and self.has_said(command))

    def has_said(self, command: str) -> bool:
        """Whether a command line that was reported to the agent is its own."""
        return command[:COMPARED] == " ".join(self.command)[:COMPARED]

    @property
    def has_ours(self) -> bool:
        """Whether our library is loaded."""
        ours = self.variables.get("DEEPPROF_INJECT", "")
        return any(path == ours or "/collectors/live/inject/_inject" in path for path in self.maps)

    def find(self, pattern: str) -> str | None:
        """Return the first mapped file whose name matches a regular expression from its beginning."""
        return next((path for path in self.maps if re.match(pattern, path.rpartition("/")[2])), None)

    @property
    def is_python(self) -> bool:
        """Whether it is a Python interpreter."""
        return bool(self.command) and PYTHON.fullmatch(self.command[0]) is not None

    @property
    def has_hook(self) -> bool:
        """Whether our hook is on the PYTHONPATH of its environment."""
        return any(part.rstrip("/").endswith("/hook") for part in self.variables.get("PYTHONPATH", "").split(":"))

    @property
    def python_flag(self) -> str | None:
        """Which of Python's flags keeps our hook out: I, E or S."""
        return find_flag(self.command[1:]) if self.is_python else None


def find_flag(words: Sequence[str]) -> str | None:
    """Return the flag that keeps our hook out, from Python's arguments, which end where the program begins."""
    rest = iter(words)
    for word in rest:
        if word == "-" or not word.startswith("-") or word.startswith("--"):
            return None
        for place, flag in enumerate(word[1:], 2):
            if flag in KEEPS_OUT:
                return flag
            if flag in "cm":
                return None
            if flag in TAKES_WORD:
                if place == len(word):
                    next(rest, None)
                break
    return None


def read_suspect(
    tree: FileTree, pid: int, *, is_root: bool = False
) -> tuple[InspectedProcess | None, DoctorFinding | None]:
    """Return the process, None if it does not exist, and the finding that explains why it cannot be examined."""
    own = f"/proc/{pid}"
    status = tree.read(f"{own}/status")
    if status is None:
        return None, None
    words = dict(line.partition(":")[::2] for line in status.splitlines())
    name = words.get("Name", "").strip()
    if words.get("State", "").strip().startswith(("Z", "X")):
        return InspectedProcess(pid, name), wrong(
            PROCESS, f"{pid} ({name}) has ended", "nothing can be seen of it any more"
        )
    try:
        environ, maps = tree.read_bytes(f"{own}/environ"), tree.read_bytes(f"{own}/maps")
    except OSError as error:
        return InspectedProcess(pid, name), _explain_closed(pid, name, words.get("Uid", ""), error, is_root=is_root)
    children = _read_children(tree, pid)
    return InspectedProcess(
        pid=pid,
        name=name,
        command=(tree.read(f"{own}/cmdline") or "").split("\0")[:-1],
        variables=split(environ),
        maps=list_files(maps.decode("utf-8", "replace")),
        pids=[pid, *(int(number) for number in words.get("NSpid", "").split() if number.isdecimal())],
        foreign=[kind for kind in NAMESPACES if _differs(tree, pid, kind)],
        children=children,
        watched=[child for child in children if _is_prepared(tree, child)],
        root_readable=tree.exists(f"{own}/root/"),
    ), None


def _explain_closed(pid: int, name: str, users: str, error: OSError, *, is_root: bool = False) -> DoctorFinding:
    """Return the finding on a process that we cannot examine; `users` are its user ids."""
    if error.errno == errno.ESRCH:
        return wrong(PROCESS, f"{pid} ({name}) has no memory of its own", "it is the kernel's, or ends just now")
    owner = next(iter(users.split()), "?")
    advice = f"run this as that user or as root (sudo deepprof doctor {pid}), in its container"
    if is_root:  # root of a container without the right to examine processes
        advice = "run this where root may look into processes (CAP_SYS_PTRACE): on the host itself"
    return wrong(PROCESS, f"{pid} ({name}) is user {owner}'s: {error.strerror}", advice)


def split(environ: bytes) -> dict[str, str]:
    """Return the variables of an environment; the first of every name counts, as for the C library."""
    variables: dict[str, str] = {}
    for line in environ.decode("utf-8", "replace").split("\0"):
        name, equals, text = line.partition("=")
        if equals:
            variables.setdefault(name, text)
    return variables


def list_files(maps: str) -> list[str]:
    """Return the files that are mapped, each once."""
    paths = (words[5] for line in maps.splitlines() if len(words := line.split(maxsplit=5)) == 6)
    return list(dict.fromkeys(path.removesuffix(" (deleted)") for path in paths if path.startswith("/")))


def _differs(tree: FileTree, pid: int, kind: str) -> bool:
    """Whether a process has its own namespace; False where that cannot be read."""
    theirs, ours = tree.read_link(f"/proc/{pid}/ns/{kind}"), tree.read_link(f"/proc/self/ns/{kind}")
    return theirs is not None and ours is not None and theirs != ours


def _read_children(tree: FileTree, pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    text = tree.read(f"/proc/{pid}/task/{pid}/children") or ""
    return [int(word) for word in text.split() if word.isdecimal()]


def _is_prepared(tree: FileTree, pid: int) -> bool:
    """Whether `deepprof run` has put its library into a process's environment; False where that cannot be read."""
    return "\0DEEPPROF_INJECT=" in f"\0{tree.read(f'/proc/{pid}/environ') or ''}"
