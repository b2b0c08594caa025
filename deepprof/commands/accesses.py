"""`deepprof accesses`."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import TraceError, UsageError
from deepprof.commands.streams import say
from deepprof.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deepprof.collectors.live.accesses.toolkit import CompiledAccesses
    from deepprof.collectors.trace import Trace

LAUNCHES, BLOCK_NBYTES, SLOTS = 2000, 1 << 21, 1 << 15
MIN_BLOCK_NBYTES, MAX_SLOTS = 1 << 9, 1 << 18
PREFIX = "DEEPPROF_ACCESSES_"
DRIVER = "libcuda.so.1"


class Accesses:
    """Run a program and count which blocks of GPU memory its kernels access.

    NVIDIA's Compute Sanitizer patches each access to global memory to be counted, and kernels run one after the other:
    the program is far slower, so choose few launches. `deepprof tool hotness FILE` and `deepprof tool working-set FILE`
    show what was counted. Each further process of the program that uses a GPU writes FILE.PID. Compiles its library
    first, with the nvcc and the Compute Sanitizer of this machine. COMMAND must not be profiled by others meanwhile.

    Exit: COMMAND's own, also by a signal; 126 and 127 where it cannot be started, 2 where nothing can be counted.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        parser.usage = "deepprof accesses -o FILE [OPTION ...] [--] COMMAND ..."
        add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="what to run, with its arguments")
        add("-o", "--output", metavar="FILE", required=True, help="the recording to write, such as job.accesses")
        add("--launches", metavar="N", type=int, default=LAUNCHES, help="count so many launches (default 2000)")
        add("--skip", metavar="N", type=int, default=0, help="leave out so many launches before")
        add("--kernels", metavar="TEXT", help="count only kernels whose (mangled) name contains TEXT")
        add("--block", metavar="BYTES", type=int, default=BLOCK_NBYTES, help="the size of blocks (default 2097152)")
        add("--slots", metavar="N", type=int, default=SLOTS, help="room for blocks of one kernel (default 32768)")

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return its exit code."""
        from deepprof.collectors.live.accesses.toolkit import compile_accesses, find_toolkit
        from deepprof.commands.run import read_command
        from deepprof.live.agent.running import CannotRunError

        command, output = read_command(args.command, "accesses"), Path(args.output).absolute()
        _check(args)
        toolkit = find_toolkit(os.environ)
        with tempfile.TemporaryDirectory(prefix="deepprof-accesses-") as folder:
            compiled = compile_accesses(toolkit, Path(folder))
            output.unlink(missing_ok=True)  # the library takes another name where a file is
            try:
                return _run(command, _make_environment(args, output, compiled), output)
            except CannotRunError as error:
                say(f"deepprof: {error}")
                return error.status


def _check(args: argparse.Namespace) -> None:
    """Raise `UsageError` for options that cannot be, and for a machine without NVIDIA's driver."""
    from deepprof.files import check_target

    check_target(args.output)
    if os.path.exists(args.output) and not os.path.isfile(args.output):
        raise UsageError(f"{args.output}: is there and no file; choose another -o")
    if args.launches < 1 or args.skip < 0:
        raise UsageError("--launches is 1 at least, and --skip 0")
    for name, number, low, high in (
        ("block", args.block, MIN_BLOCK_NBYTES, BLOCK_NBYTES),
        ("slots", args.slots, 1, MAX_SLOTS),
    ):
        if not low <= number <= high or number & (number - 1):
            raise UsageError(f"--{name} is a power of two from {low} to {high}")
    try:
        ctypes.CDLL(DRIVER)
    except OSError as error:
        raise UsageError(
            f"accesses cannot be counted here: {DRIVER} of NVIDIA's driver is not found; run it where a GPU is"
        ) from error


def _make_environment(args: argparse.Namespace, output: Path, compiled: CompiledAccesses) -> dict[str, str]:
    settings = {
        "OUTPUT": str(output),
        "PATCHES": str(compiled.patches),
        "LAUNCHES": str(args.launches),
        "SKIP": str(args.skip),
        "KERNELS": args.kernels or "",
        "BLOCK": str(args.block),
        "SLOTS": str(args.slots),
    }
    added = {PREFIX + name: text for name, text in settings.items()}
    return {**os.environ, **added, "CUDA_INJECTION64_PATH": str(compiled.library)}


def _run(command: list[str], environ: Mapping[str, str], output: Path) -> int:
    """Run the command, its signals passed on, print what was counted, and return its exit code."""
    from deepprof.live.agent.running import leave, signals_blocked, spawn, wait

    with signals_blocked() as mask:
        status = wait(spawn(command, environ, mask), lambda ended: None)
        _sum_up(output)
    shutil.rmtree(Path(environ[f"{PREFIX}PATCHES"]).parent, ignore_errors=True)  # a signal may end us in the next line
    return leave(status)


def _sum_up(output: Path) -> None:
    """Print what was counted, or why nothing was."""
    from deepprof.collectors import importers

    if not output.exists():
        say(f"deepprof: {output}: nothing was counted: no process of the command used an NVIDIA GPU")
        return
    try:
        trace = importers.read(output)
    except TraceError as error:
        say(f"deepprof: {error}")
        return
    say(f"deepprof: {_describe(output, trace)}")
    for note in trace.notes[1:]:
        say(f"deepprof: note: {note}")


def _describe(output: Path, trace: Trace) -> str:
    dropped = ", ".join(f"{reason} {many:,}" for reason, many in trace.accounting.dropped.items())
    kernels = counted(trace.device_events.height, "launch", "launches")
    return f"{output}: {kernels} counted; not counted: {dropped or 'nothing'}"
