"""The environment of a command that is to be collected from: what is loaded into its processes, and its settings.

Pure: variables that the user has set already stay, and a remark states what is lost by that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOOK = "PYTHONPATH"
INJECTIONS = {  # the variable that makes a library load ours, and what is lost without it
    "CUDA_INJECTION64_PATH": "kernels and copies on the GPU are not collected",
    "INTEL_LIBITTNOTIFY64": "PyTorch's operators are not collected",
    "NVTX_INJECTION64_PATH": "NVTX ranges are not collected",
}
ONLY_WITH_CONTEXT = "NVTX_INJECTION64_PATH"  # ranges cost the job time, and are requested


@dataclass(frozen=True, slots=True)
class InjectionPlan:
    """The options of `run`, and the paths that it needs. `library` and `hook` are absolute.

    `run` marks the processes of this one command among others of the same job; empty for no mark.
    """

    library: Path
    hook: Path
    socket: Path
    job: str
    context: bool = False
    contexts: str = "off"
    steps: bool = False
    memory: bool = False
    kineto: bool = False
    graphs: str | None = None
    quiet: bool = False
    run: str = ""


def inject(variables: Mapping[str, str], plan: InjectionPlan) -> tuple[dict[str, str], list[str]]:
    """Return the environment for the command, made from `variables`, and remarks for people."""
    environ, remarks = dict(variables), list[str]()
    for name, cost in INJECTIONS.items():
        if name == ONLY_WITH_CONTEXT and not plan.context:
            continue
        there = environ.get(name)
        if there and there != str(plan.library):
            remarks.append(f"{name} is set to {there} and left alone: {cost}")
        else:
            environ[name] = str(plan.library)
    environ[HOOK] = _put_first(str(plan.hook), environ.get(HOOK, ""))
    environ |= settings(plan)
    if plan.kineto:
        environ["KINETO_USE_DAEMON"] = "1"
        environ.setdefault("KINETO_IPC_SOCKET_DIR", str(plan.socket.parent))
    return environ, remarks


def settings(plan: InjectionPlan) -> dict[str, str]:
    """Return the variables that the library and the hook read."""
    told = {"DEEPPROF_SOCKET": str(plan.socket), "DEEPPROF_INJECT": str(plan.library), "DEEPPROF_JOB": plan.job}
    told |= {"DEEPPROF_CONTEXT": "1"} if plan.context else {}
    told |= {"DEEPPROF_CONTEXTS": plan.contexts} if plan.contexts != "off" else {}
    told |= {"DEEPPROF_HOOK": "steps"} if plan.steps else {}
    told |= {"DEEPPROF_MEMORY": "1"} if plan.memory else {}
    told |= {"DEEPPROF_GRAPHS": plan.graphs} if plan.graphs else {}
    told |= {"DEEPPROF_RUN": plan.run} if plan.run else {}
    return told | ({"DEEPPROF_QUIET": "1"} if plan.quiet else {})


def strip(variables: Mapping[str, str], library: Path, hook: Path) -> dict[str, str]:
    """Return `variables` without what `inject` adds: the agent itself is not collected from."""
    ours = {(name, str(library)) for name in INJECTIONS}
    environ = {name: text for name, text in variables.items() if name != HOOK and (name, text) not in ours}
    paths = [path for path in variables.get(HOOK, "").split(os.pathsep) if path and path != str(hook)]
    return environ | ({HOOK: os.pathsep.join(paths)} if paths else {})


def _put_first(path: str, paths: str) -> str:
    """Return a search path that begins with `path`; an empty part would mean the current directory."""
    others = [part for part in paths.split(os.pathsep) if part != path] if paths else []
    return os.pathsep.join([path, *others])
