"""Waits in a Python process of a job for the import of torch or JAX, and runs the sitecustomize that ours shadows.

It loads no module that is not loaded already but `__future__`, prints nothing, and leaves sys.path as it would be
without the hook.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than this whole module
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

TORCH = {"torch": ("process", "optimizer_steps", "torch_hook")}
JAX = dict.fromkeys(("jaxlib._jax", "jaxlib.xla_extension"), ("process", "jax_hook"))  # the latter up to 0.6.0
HERE = os.path.dirname(os.path.abspath(__file__))


class HookImportFinder:
    """A module finder that finds no module itself, and has a hook run once a module has been imported.

    `hooks` are files by the names of modules, the last one the hook itself: each runs once, for its first module.
    """

    def __init__(self, hooks: dict[str, tuple[str, ...]]) -> None:
        self.hooks = hooks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module with a hook, whose loader calls that; None for all other modules."""
        if name not in self.hooks:
            return None
        spec = find(name, path, target, [finder for finder in sys.meta_path if finder is not self])
        try:  # noqa: SIM105  # contextlib is not loaded yet, here and below
            self.follow(spec.loader if spec else None)
        except Exception:  # noqa: S110  # a loader that takes no attribute: torch loads as usual, without the hook
            pass
        return spec

    def follow(self, loader: Any) -> None:
        """Make this one loader call the hook. Finding torch does not import it, so nothing else changes yet.

        A zip has one loader for all of its modules and lookups. A class is the loader of all frozen modules: it stays.
        """
        if loader is None or isinstance(loader, type):
            return
        execute = loader.exec_module
        if getattr(execute, "__module__", None) == __name__:
            return

        def exec_module(module: ModuleType) -> None:
            if module.__name__ not in self.hooks:
                execute(module)
                return
            del loader.exec_module
            execute(module)
            self.run(module)

        loader.exec_module = exec_module

    def run(self, module: ModuleType) -> None:
        """Run the hook of a module that has just been imported; the last one leaves nothing behind."""
        hook = self.hooks.get(module.__name__)
        for name in [name for name, other in self.hooks.items() if other == hook]:
            del self.hooks[name]
        if not self.hooks and self in sys.meta_path:
            sys.meta_path.remove(self)
        if hook:
            attach(module, hook)


def find(name: str, path: Any, target: Any, finders: list[Any]) -> ModuleSpec | None:
    """Ask the other finders, as the import system does."""
    for finder in finders:
        spec: ModuleSpec | None = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None


def attach(module: ModuleType, parts: tuple[str, ...]) -> None:
    """Run a hook on a module that has just been imported. A failure here never harms the job."""
    try:
        space: dict[str, Any] = {"__name__": "_deepprof_" + parts[-1]}
        for name in parts:
            with open(os.path.join(HERE, name + ".py"), "rb") as source:
                exec(compile(source.read(), source.name, "exec"), space)  # noqa: S102  # its folder is not on sys.path
        space["attach"](module)
    except Exception:  # noqa: S110
        pass


def _run_shadowed() -> None:
    """Run the sitecustomize that would have run without this one; its exceptions propagate as they would have."""
    spec = find("sitecustomize", list(sys.path), None, list(sys.meta_path))
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def begin() -> None:
    """Install the finder and run the shadowed sitecustomize, at the interpreter's start where sitecustomize runs."""
    sys.path[:] = [path for path in sys.path if os.path.normpath(path) != HERE]
    if os.environ.get("DEEPPROF_SOCKET") and os.environ.get("DEEPPROF_INJECT"):
        contexts = os.environ.get("DEEPPROF_CONTEXTS") in ("operators", "python", "native")
        sys.meta_path.insert(0, HookImportFinder({**TORCH, **(JAX if contexts else {})}))
    _run_shadowed()
