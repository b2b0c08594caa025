"""What the hooks of all libraries share: the process that they run in, its beginning and its end.

watch.py runs it in the space of every hook, before the hook itself.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, Protocol

    class FinishedAtExit(Protocol):
        """What is collected, as far as an end of the process matters to it."""

        def finish(self) -> None:
            """Send everything, because the process ends."""

        def forget(self) -> None:
            """Send nothing, in the child of a fork."""


CONTEXTS = {"operators": 1, "python": 2, "native": 3}
DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/dxg", "/dev/kfd")  # the last but one is WSL's
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
AT_END: list[Callable[[], None]] = []
LAST = -1000  # priority: multiprocessing runs its finalizers from large to small


def quietly(call: Callable[[], None]) -> None:
    """Call `call` and suppress its exceptions."""
    with contextlib.suppress(Exception):
        call()


def load(path: str) -> Any:
    """Load the library; if ITT or the driver has loaded it already, it is the same one."""
    library = ctypes.CDLL(path)
    library.deepprof_notice.argtypes = [ctypes.c_uint, ctypes.c_char_p]
    library.deepprof_push.argtypes = [ctypes.c_char_p]
    library.deepprof_contexts.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    library.deepprof_jax.argtypes = [ctypes.c_int, ctypes.c_char_p]
    library.deepprof_call_cost.argtypes = [ctypes.c_int64]
    return library


def finds_device() -> bool:
    """Return whether there is a GPU that this process may use. The driver is not asked: that starts it."""
    if any(os.environ.get(name, "0").strip() in ("", "-1") for name in HIDING):
        return False
    return any(os.path.exists(device) for device in DEVICES)


def find_prefixes(module: ModuleType) -> bytes:
    """Return beginnings of file names to leave out, a line each: where torch's own profiler leaves them out, too."""
    import site

    places = [*site.getsitepackages(), *sys.path, site.getuserbase(), site.getusersitepackages()]
    places.append(os.path.dirname(os.path.dirname(str(module.__file__))))
    prefixes = sorted({os.path.abspath(place) + os.sep for place in places if isinstance(place, str)}, reverse=True)
    return "\n".join(prefixes).encode(errors="replace")


def finish_at_exit(collected: FinishedAtExit) -> None:
    """Finish when the process ends, also if multiprocessing ends it without running atexit."""

    def finish() -> None:
        with contextlib.suppress(BaseException):  # an interrupt while it waits: Python would print it and go on
            collected.finish()

    AT_END.append(collected.finish)
    atexit.register(finish)
    util: Any = sys.modules.get("multiprocessing.util")  # a process of multiprocessing has it from its beginning
    if util:
        util.Finalize(None, collected.finish, exitpriority=LAST)
    os.register_at_fork(after_in_child=collected.forget)


def begin_in_process(begin: Callable[[], None]) -> None:
    """Begin, unless this is a daemon of multiprocessing; a process that is being spawned does not know that yet."""
    process: Any = sys.modules.get("multiprocessing.process")
    current = process.current_process() if process else None
    if getattr(current, "_inheriting", False):
        _wait_for_role(process.BaseProcess, begin)
    elif not getattr(current, "daemon", False):
        begin()


def _wait_for_role(kind: Any, begin: Callable[[], None]) -> None:
    """Begin when the spawned process begins its work, unless it is a daemon: DataLoader's workers are."""
    bootstrap = kind._bootstrap

    def begin_child(self: Any, *values: Any, **named: Any) -> Any:
        kind._bootstrap = bootstrap
        if not self.daemon:
            quietly(begin)
        try:
            return bootstrap(self, *values, **named)
        finally:
            for finish in AT_END:  # a fork server ends its children without running exit handlers
                quietly(finish)

    kind._bootstrap = begin_child
