"""`deepprof.range`, `deepprof.start` and `deepprof.stop`: ranges that a training program names itself (PASTA's ranges).

A range is written to whatever records this process: as a `record_function` of torch where the program has imported it,
and as a range of NVTX or roctx where one of these libraries is there. Without any of them it costs a look into a table.
Nothing is imported but `nvtx`, and that only under a tool that takes its ranges. No error of a library reaches the
program.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from deepprof.collectors.live.job_log import warn

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

NVTX = ("libnvToolsExt.so.1", "libnvToolsExt.so")
ROCTX = (  # the first is that of ROCm 6.2 and later, whose tools do not see the ranges of the other
    *("librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so.0", "librocprofiler-sdk-roctx.so"),
    *("libroctx64.so.4", "libroctx64.so"),
)
INJECTED = "NVTX_INJECTION64_PATH"  # which names the library of the tool that takes the ranges of NVTX
UNSTARTED = "deepprof.stop() without a deepprof.start() before it on this thread: nothing was ended"
FAILED = "a range could not be written and is left out: "
WARNED: set[str] = set()


@dataclass(frozen=True, slots=True)
class _RangeWriter:
    """How ranges are written: `push` begins one, and returns what `pop` ends it with."""

    push: Callable[[str], object]
    pop: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class _OpenRange:
    """A range that is open: what ends it, and the `ProgramRange` that began it; None: `start` did."""

    written: tuple[tuple[_RangeWriter, object], ...]
    owner: ProgramRange | None


class _OpenRanges(threading.local):
    """The ranges that are open on a thread, the innermost last."""

    def __init__(self) -> None:
        self.ranges: list[_OpenRange] = []


OPEN = _OpenRanges()


class ProgramRange:
    """What `range` returns: a context manager, and a decorator of functions. It can be used any number of times."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        _begin(self.name, self)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _end(self)

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Return the function, each of whose calls is such a range; raises `TypeError` for a class.

        What a decorator makes of a class is no class any more: nothing could inherit from it.
        """
        if isinstance(function, type) or not callable(function):
            is_class = isinstance(function, type)
            what = f"{function.__name__} is a class: decorate its methods" if is_class else f"{function!r} is none"
            raise TypeError(f"deepprof.range({self.name!r}) decorates functions, and {what}")

        @functools.wraps(function)
        def call(*values: Parameters.args, **named: Parameters.kwargs) -> Result:
            with self:
                return function(*values, **named)

        return call


def range(name: str) -> ProgramRange:
    """Return a range that names a part of a program: `with deepprof.range("encoder"):`, or a decorator of a function.

    A profiler that records this process has it among its ranges: torch.profiler, Nsight Systems, rocprof and
    `deepprof run`; with `--range NAME` DeepProf's commands examine what was launched in it. Ranges may be in each
    other and be open on several threads at once. One that is left by an exception ends there. Of a coroutine or a
    generator a decorator marks only the call that makes it; a range that is open over an `await` or a `yield` contains
    what its thread does meanwhile, and takes the ranges that were begun in it along when it ends. Where nothing
    records ranges this costs next to nothing; it never raises, but for a `TypeError` where it decorates a class.
    """
    return ProgramRange(name)


def start(name: str) -> None:
    """Begin a range, which `stop` ends on the same thread, as `range` does for a `with` statement.

    If it is not stopped, it ends with the `with deepprof.range(…)` around it.
    """
    _begin(name, None)


def stop() -> None:
    """End the range that `start` began last on this thread; without one, a line is logged once and nothing happens."""
    if OPEN.ranges and OPEN.ranges[-1].owner is None:
        _end(None)
    else:
        _warn_once(UNSTARTED)


def _begin(name: str, owner: ProgramRange | None) -> None:
    written = []
    try:
        for writer in _find_writers():
            written.append((writer, writer.push(str(name))))
    except Exception as error:  # a library may raise any
        _warn_once(FAILED, str(error))
    OPEN.ranges.append(_OpenRange(tuple(written), owner))


def _end(owner: ProgramRange | None) -> None:
    """Write the end of the last range of an owner, and first of those in it that were left open.

    One that another thread began, or that ended with the one around it, has no end here.
    """
    while any(each.owner is owner for each in OPEN.ranges):
        last = OPEN.ranges.pop()
        for writer, handle in reversed(last.written):
            try:
                writer.pop(handle)
            except Exception as error:
                _warn_once(FAILED, str(error))
        if last.owner is owner:
            return


def _warn_once(text: str, detail: str = "") -> None:
    """Log a line, once in a process."""
    if text not in WARNED:
        WARNED.add(text)
        warn(f"{text}{detail}")


def _find_writers() -> tuple[_RangeWriter, ...]:
    """Return what ranges are written with at this moment.

    While a profiler of torch runs on this thread it has the range; another library's would be the same range again.
    """
    torch, nvtx = sys.modules.get("torch"), sys.modules.get("nvtx")
    if torch is None or "torch.autograd.profiler" not in sys.modules:  # none, or one that is just being imported
        return _find_libraries(None, nvtx)
    libraries = () if torch.autograd._profiler_enabled() else _find_libraries(torch, nvtx)
    return (_write_with_torch(torch), *libraries)


@functools.cache
def _write_with_torch(torch: ModuleType) -> _RangeWriter:
    record = torch.autograd.profiler.record_function
    return _RangeWriter(lambda name: record(name).__enter__(), lambda entered: entered.__exit__(None, None, None))


@functools.cache
def _find_libraries(torch: ModuleType | None, nvtx: ModuleType | None) -> tuple[_RangeWriter, ...]:
    """Return how ranges are written with NVTX and with roctx, as far as these are there; `nvtx` is the package."""
    found = (_find_nvtx(torch, nvtx), _load(ROCTX, "roctxRangePushA", "roctxRangePop"))
    return tuple(writer for writer in found if writer is not None)


def _find_nvtx(torch: Any, nvtx: Any) -> _RangeWriter | None:
    """Return how ranges are written with NVTX: that of a torch for CUDA, the package `nvtx`, or the library."""
    if torch is not None and getattr(torch.version, "cuda", None):
        own = torch.cuda.nvtx
        return _RangeWriter(own.range_push, lambda _: own.range_pop())
    if nvtx is None and INJECTED in os.environ:  # else no one would see its ranges, and it imports numpy
        with suppress(Exception):  # as of a package for another Python
            nvtx = importlib.import_module("nvtx")
    if nvtx is not None:
        return _RangeWriter(nvtx.push_range, lambda _: nvtx.pop_range())
    return _load(NVTX, "nvtxRangePushA", "nvtxRangePop")


def _load(names: tuple[str, ...], push: str, pop: str) -> _RangeWriter | None:
    """Return how ranges are written with the first of some shared libraries that can be loaded."""
    for name in names:
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(name)
            return _call_library(getattr(library, push), getattr(library, pop))
    return None


def _call_library(push: Any, pop: Any) -> _RangeWriter:
    """Return how ranges are written with two functions of a shared library."""
    push.argtypes, push.restype, pop.argtypes, pop.restype = [ctypes.c_char_p], ctypes.c_int, [], ctypes.c_int
    return _RangeWriter(lambda name: push(name.encode(errors="replace")), lambda _: pop())
