"""Reading traces with several processes at once, each a new interpreter: nothing is forked, pickled or imported again.

Each process writes the tables of its trace in the format of the native store, into a folder that only this user can
enter, and this process reads them from there. Takes the memory of one trace being read per process, and disk for the
tables.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from deepprof.collectors.errors import TraceError, UsageError
from deepprof.job.sources import TraceSource, TraceSources
from deepprof.libraries import count_cpus

JOBS = "DEEPPROF_JOBS"
PAYS_NBYTES = 512 * 1024**2  # of content, two seconds of reading: below it, starting processes costs what they save
TAKES = 4  # reading a trace takes this many times its content in memory
MAX_READERS = 64
PLENTY = 1 << 60
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
AVAILABLE = re.compile(rb"^MemAvailable:\s+(\d{1,15}) kB$", re.MULTILINE)
Watch = Callable[[int, int], None]  # traces read, traces in all
Found = TypeVar("Found")


def choose_jobs(jobs: int | None, sizes: Sequence[int]) -> int:
    """Return how many processes read files of the content `sizes` in bytes; 1: only this process.

    `jobs` decides, else the variable DEEPPROF_JOBS, else the processors, the files and the free memory. Raises
    `UsageError` for a variable that is no number from 1 to 64.
    """
    wanted = jobs if jobs is not None else _read_variable()
    if wanted is not None and not 1 <= wanted <= MAX_READERS:
        raise UsageError(f"{wanted} processes to read with: give 1 to {MAX_READERS}")
    if len(sizes) < 2 or not _can_start():
        return 1
    if wanted is not None:
        return min(wanted, len(sizes))
    if sum(sizes) < PAYS_NBYTES:
        return 1
    return max(1, min(count_cpus(), len(sizes), MAX_READERS, free_nbytes() // (TAKES * max(sizes) + 1)))


def _read_variable() -> int | None:
    """Return the variable DEEPPROF_JOBS, None where it is not set."""
    text = os.environ.get(JOBS, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise UsageError(f"{JOBS}={text[:40]!r} is no number of processes; give 1 to {MAX_READERS}")
    return int(text) if text else None


def _can_start() -> bool:
    """Return whether `sys.executable` is a Python, not a program that has one built in."""
    return bool(sys.executable) and Path(sys.executable).name.lower().startswith(("python", "pypy"))


def free_nbytes() -> int:
    """Return the bytes of memory that may be taken now; `PLENTY` where the system does not report them.

    Linux's cache of files counts as free too, and just after a trace was recorded it is most of the free memory.
    """
    try:
        free = read_available() or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        free = PLENTY
    return min(free, read_limit())


def read_limit() -> int:
    """Return the bytes of memory that the container may take in all; `PLENTY` where no limit is set."""
    for file in CONTAINER_LIMITS:
        try:
            text = Path(file).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text.isdecimal():
            return int(text)
    return PLENTY


def read_available() -> int:
    """Return the bytes that Linux reports as available to programs, 0 for other systems."""
    try:
        found = AVAILABLE.search(Path("/proc/meminfo").read_bytes())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def read_in_parallel(  # noqa: PLR0913  options by name
    sources: TraceSources,
    jobs: int,
    scratch: Path,
    finish: Callable[[TraceSource, Path], Found],
    watch: Watch | None = None,
    *,
    details: bool | None = False,
    shapes: bool = True,
) -> list[Found]:
    """Return the result of `finish` for every source and the folder its trace was written to, in the sources' order.

    `scratch` is a directory to write to, `details` and `shapes` are those of `importers.read`. Raises `TraceError` for
    the first trace that cannot be read, or whose process was ended, and `OSError` where it cannot be written; all
    processes have ended when this returns or raises.
    """
    workers = WorkerPool(sources, scratch, finish, watch, {"details": details, "shapes": shapes})
    with ThreadPoolExecutor(jobs) as threads:
        try:
            futures = [threads.submit(workers.work, len_share(jobs)) for _ in range(jobs)]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            workers.stop()
    failed = [error for future in futures if (error := future.exception()) is not None]
    for text in workers.warned:
        warnings.warn(text, stacklevel=3)
    if failed:
        raise next((error for error in failed if not isinstance(error, _StoppedError)), failed[0])
    return [workers.results[index] for index in sorted(workers.results)]


def len_share(jobs: int) -> int:
    """Return how many threads one of `jobs` processes may use for itself."""
    return max(1, count_cpus() // jobs)


class _StoppedError(Exception):
    """A thread's work was stopped because another's failed."""


class WorkerPool(Generic[Found]):
    """The processes at work, and the results they have brought."""

    def __init__(
        self,
        sources: TraceSources,
        scratch: Path,
        finish: Callable[[TraceSource, Path], Found],
        watch: Watch | None,
        options: Mapping[str, bool | None],
    ) -> None:
        self.sources, self.scratch, self.finish, self.watch = sources, scratch, finish, watch
        self.options = options
        self.results: dict[int, Found] = {}
        self.warned: dict[str, None] = {}  # in order, each once
        self.running: list[subprocess.Popen[bytes]] = []
        self.stopped, self.lock = False, Lock()

    def work(self, threads: int) -> None:
        """Have one process read sources until there are no more."""
        process: subprocess.Popen[bytes] | None = None
        for source in self.sources:
            process = process or self.start(threads)
            folder = self.scratch / f"{source.index:06d}"
            self.ask(process, source, folder)
            found = self.finish(source, folder)
            source.forget()
            self.note(source.index, found)

    def start(self, threads: int) -> subprocess.Popen[bytes]:
        """Start a process that sees the same modules as this one, and no others."""
        paths = [str(Path(entry or os.curdir).resolve()) for entry in sys.path]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "POLARS_MAX_THREADS": str(threads)}
        with self.lock:
            if self.stopped:
                raise _StoppedError
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deepprof.job.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                process_group=0 if os.name == "posix" else None,  # this process passes Ctrl-C on
            )
            self.running.append(process)
            return process

    def ask(self, process: subprocess.Popen[bytes], source: TraceSource, folder: Path) -> None:
        """Have `process` read `source` into `folder`; raises the error that it reports."""
        job = {"path": str(source.path), "shown": source.shown, "folder": str(folder), **self.options}
        try:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:  # the process has ended
            line = b""
        if self.stopped:
            raise _StoppedError
        if not line.endswith(b"\n"):
            raise explain_end(source, process.wait())
        self.check(source, json.loads(line))

    def check(self, source: TraceSource, told: dict[str, Any]) -> None:
        """Raise the error in a process's answer, and keep its warnings."""
        with self.lock:
            self.warned |= dict.fromkeys(told["warnings"])
        if "trace_error" in told:
            raise source.explain(TraceError(*told["trace_error"]), alone=False)
        if "os_error" in told:
            raise OSError(*told["os_error"])
        if "bug" in told:
            raise RuntimeError(f"{source.name}: a bug in the process that read it:\n{told['bug']}")

    def note(self, index: int, found: Found) -> None:
        """Keep a result, and report the progress to `watch`."""
        with self.lock:
            self.results[index] = found
            if self.watch is not None:
                self.watch(len(self.results), self.sources.total)

    def stop(self) -> None:
        """End every process, whatever it is doing."""
        with self.lock:
            self.stopped = True
        for process in self.running:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                _close(pipe)


def _close(pipe: Any) -> None:
    """Close a pipe whose reader may be gone."""
    try:
        pipe.close()
    except OSError:
        return


def explain_end(source: TraceSource, status: int) -> TraceError:
    """Return the error for a process that ended with `status` before it answered."""
    try:
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    except ValueError:
        how = f"signal {-status}"
    advice = "the memory may be too small; read one at a time with --jobs 1"
    return TraceError(source.name, f"could not be read: the process that read it was ended ({how})", advice)
