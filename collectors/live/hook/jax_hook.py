"""The hook that runs once a job has imported the compiled part of JAX, where contexts are requested.

JAX makes an object of C++ of every jitted function, and calls of it never come to Python. The function that makes them
is looked up in its module each time. So it is replaced there before JAX's own modules jit theirs: what it returns is
the same object, which is handed to our library with the name of its computations.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

if __name__.startswith("deepprof."):  # else watch.py has run it in this space
    from deepprof.collectors.live.hook.process import (
        CONTEXTS,
        begin_in_process,
        find_prefixes,
        finds_device,
        finish_at_exit,
        load,
    )

UNKNOWN_JAX = 69  # code of a notice
WRAPPED_SINCE = (0, 7)  # computations are called after jit(f) since then, after jit_f before


class JaxComputations:
    """The library in this process, as long as it collects what JAX computes."""

    def __init__(self, library: Any) -> None:
        self.library, self.is_over = library, False

    def finish(self) -> None:
        """Send everything, because the process ends."""
        if not self.is_over:
            self.is_over = True
            self.library.deepprof_finish()

    def forget(self) -> None:
        """Leave it to the parent in a forked child, where nothing is collected."""
        self.is_over = True


def name_call(api: str, name: str, version: tuple[int, ...]) -> bytes:
    """Return the name of the XLA module of a function that is jitted, or whatever `api` is."""
    import re

    text = re.sub(r"[^\w.-]", "_", f"{api}({name})" if version >= WRAPPED_SINCE else f"{api}_{name}")
    return (text.rstrip("_") if version >= WRAPPED_SINCE else text).encode(errors="replace")


def name_compiled(name: str, version: tuple[int, ...]) -> bytes:
    """Return the same of what was compiled ahead of time, which is called jit(f), or jit_f as the module itself."""
    api, _, rest = name.partition("(")
    return name_call(api, rest[:-1], version) if rest.endswith(")") else name.encode(errors="replace")


def hand_over(space: Any, attribute: str, name_of: Callable[..., bytes], take: Callable[[Any, bytes], Any]) -> None:
    """Have each object that a function of a module makes handed to `take`, with its name."""
    make = getattr(space, attribute)

    def make_and_hand_over(*values: Any, **named: Any) -> Any:
        made = make(*values, **named)
        with contextlib.suppress(Exception):  # called in another way than any that we know: it is not collected
            take(made, name_of(*values, **named))
        return made

    setattr(space, attribute, make_and_hand_over)


def watch_functions(extension: Any, version: tuple[int, ...], take: Callable[[Any, bytes], Any]) -> None:
    """Have `take` called with every function that is jitted or mapped. AttributeError where this JAX is unknown."""

    def name_jitted(function_name: str, fun: Any, *_: Any, **__: Any) -> bytes:
        return name_call("jit", function_name, version) if fun is not None else name_compiled(function_name, version)

    def name_mapped(fun: Any, *_: Any, **__: Any) -> bytes:
        return name_call("pmap", fun.__name__, version)

    hand_over(extension, "pjit", name_jitted, take)
    if hasattr(extension, "pmap_lib"):  # older ones have its own type for it
        hand_over(extension.pmap_lib, "pmap", name_mapped, take)


def read_version() -> tuple[int, ...]:
    """Return the version of JAX's library as far as it matters."""
    return tuple(int(word) for word in sys.modules["jaxlib.version"].__version__.split(".")[:2])


def load_taker(path: str) -> Callable[[Any, bytes], Any]:
    """Return the library's function that takes jitted functions; it is called with the interpreter's lock."""
    take: Any = ctypes.PyDLL(path).deepprof_computation
    take.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return take  # type: ignore[no-any-return]


def start(extension: ModuleType, library: Any, problem: str) -> None:
    """Begin in a process to collect from, or show there why not."""
    finish_at_exit(JaxComputations(library))
    if problem:
        library.deepprof_notice(UNKNOWN_JAX, problem.encode(errors="replace"))
    else:
        library.deepprof_jax(CONTEXTS[os.environ["DEEPPROF_CONTEXTS"]], find_prefixes(extension))
    library.deepprof_operators(int(not finds_device()))


def attach(extension: ModuleType) -> None:
    """Watch what is jitted from now on, and begin unless this process only helps others."""
    path, problem = os.environ["DEEPPROF_INJECT"], ""
    library = load(path)
    try:
        watch_functions(extension, read_version(), load_taker(path))
    except Exception as error:
        problem = f"the hook does not know this JAX, which is not collected: {error!r}"
    begin_in_process(lambda: start(extension, library, problem))
