"""The library that runs inside a job: plain C, loaded by the driver, by torch, or by the Python hook.

`core.h` is the interface between its core (one worker thread) and its sources; `packets.h` is what it writes.

`core.c` has the one worker thread; `queue.c`, `names.c` and `connection.c` write without waiting. Sources: the
`cupti*.c` (the GPU), `itt.c` and `nvtx.c`, with `ranges.c` and `gathering.c` (a ring per thread, and its watermark);
`memory.c` (examines the memory in use); `context*.c` and `python_frames.c` (sums by calling context: a thread's way
through the tree in `contexts.c` and `context_paths.c`, the worker's sums in `context_windows.c`); `native_*.c` (native
functions in that tree: `native_frames.c` compares stacks, which `native_unwind.c` reads by libunwind); `jax_calls.c`
shows them of JAX's computations.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["find_library"]


def find_library() -> Path | None:
    """Return where the compiled library is, absolute, or None where it was not built (no compiler, no Linux)."""
    here = Path(__file__).resolve().parent
    paths = (here / f"_inject{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)
