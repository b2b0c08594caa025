"""Made-up machines and processes for the doctor: files below a folder, and what surrounds them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepprof.live.agent.answers import AgentStatus, read_answer
from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError
from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.machine import DoctorMachine

from .fake_agent import answer

INJECT = "/opt/deepprof/collectors/live/inject/_inject.so"
SOCKET = "/run/user/1000/deepprof/agent.sock"
STARTED = {
    "DEEPPROF_SOCKET": SOCKET,
    "DEEPPROF_INJECT": INJECT,
    "DEEPPROF_JOB": "demo",
    "CUDA_INJECTION64_PATH": INJECT,
    "INTEL_LIBITTNOTIFY64": INJECT,
    "PYTHONPATH": "/opt/deepprof/collectors/live/hook",
}
LOADER, CUDA = "/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86"
TORCH = "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
CUPTI = "/venv/lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Jan 16 00:00:00 UTC 2025\nGCC version: x\n"
ABSENT = NotAnsweredError(NoAnswerReason.ABSENT)


def put(root: Path, path: str, text: str = "") -> None:
    """Make a file."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def loads(root: Path, *paths: str) -> None:
    """Let the dynamic loader know libraries."""
    put(root, "/etc/ld.so.cache", "glibc-ld.so.cache1.1\0\0" + "".join(f"{p.split('/')[-1]}\0{p}\0" for p in paths))


def around(tree: FileTree, said: Mapping[str, object] | NotAnsweredError = ABSENT, **more: object) -> DoctorMachine:
    """What surrounds a machine whose agent states `said`; the library is one that can be loaded, or is made up."""

    def ask(_: Path) -> AgentStatus:
        if isinstance(said, NotAnsweredError):
            raise said
        return read_answer(json.dumps(answer(**said)).encode())

    hook = tree.at("/hook")
    put(tree.root, "/hook/sitecustomize.py")
    usual = {"socket": Path(SOCKET), "ask": ask, "daemon": lambda _: None, "library": None, "hook": hook}
    return DoctorMachine(**(usual | more))  # type: ignore[arg-type]


def add_process(
    root: Path,
    pid: int = 77,
    *,
    variables: Mapping[str, str] = STARTED,
    maps: Sequence[str] = (LOADER,),
    command: Sequence[str] = ("python", "train.py"),
    state: str = "S (sleeping)",
    inner_pid: int | None = None,
    children: str = "",
    inside: Sequence[str] = (SOCKET, INJECT),
    own_namespaces: Sequence[str] = (),
) -> None:
    """Make the files of a process below /proc; `inside` are the files in its file system."""
    own = f"/proc/{pid}"
    numbers = f"{pid}\t{inner_pid}" if inner_pid else f"{pid}"
    put(root, f"{own}/status", f"Name:\tpython\nState:\t{state}\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t{numbers}\n")
    put(root, f"{own}/environ", "".join(f"{name}={text}\0" for name, text in variables.items()))
    rows = [f"7f00-7f01 r-xp 00000000 08:01 12 {' ' * 10}{path}\n" for path in maps for _ in range(2)]
    put(root, f"{own}/maps", "".join(rows) + "7ffd-7ffe rw-p 00000000 00:00 0 [stack]\n")
    put(root, f"{own}/cmdline", "".join(f"{word}\0" for word in command))
    put(root, f"{own}/task/{pid}/children", children)
    (root / f"proc/{pid}/root").mkdir(exist_ok=True)
    for path in inside:
        put(root, f"{own}/root{path}")
    for kind in ("mnt", "pid", "user"):
        link(root / "proc/self/ns" / kind, f"{kind}:[1]")
        link(root / f"proc/{pid}/ns/{kind}", f"{kind}:[{2 if kind in own_namespaces else 1}]")


def link(path: Path, text: str) -> None:
    """Make a link that leads nowhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        os.symlink(text, path)
