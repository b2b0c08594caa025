"""Errors put into code where no one expects one: at every await, and in what threads and the event loop are to run.

`install` has the modules of packages compiled with a question before each of those places, "shall this fail now?", so
that the list of places is read off the code and a new one is in it by itself. Nothing imported before takes part. A
place is named by its module, its function and what is there.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

__all__ = ["PLAN", "InjectedError", "Plan", "install"]

ASK = "__shall_fail__"
SHOWN = 60  # letters of what is at a place
HANDS_OVER = {"guard", "call_soon", "call_soon_threadsafe", "call_later", "call_at", "add_done_callback", "add_reader"}


class InjectedError(Exception):
    """What no one foresaw."""


@dataclass
class Plan:
    """Where the next error is; `passed` counts how often every known place was passed, until the plan is `over`."""

    place: str = ""
    passed: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def ask(self, place: str) -> None:
        """Raise at the place that is armed, once."""
        if self.over:
            return
        self.passed[place] += 1
        if place == self.place:
            self.place = ""
            raise InjectedError(place)

    def end(self) -> bool:
        """Let everything pass from now on, uncounted; return whether the place that was armed has been passed."""
        self.over = True
        return not self.place


PLAN = Plan()


class Places(ast.NodeTransformer):
    """Puts the question before every await, into what `called` names, and (`threaded`) into all functions and loops."""

    def __init__(self, module: str, called: set[str], *, threaded: bool) -> None:
        self.module, self.called, self.threaded = module, called, threaded
        self.functions: list[str] = []
        self.counts: Counter[str] = Counter()

    def question(self, what: str) -> ast.Call:
        where = f"{self.module}:{'.'.join(self.functions)}: {what[:SHOWN]}"
        self.counts[where] += 1
        place = where if self.counts[where] == 1 else f"{where} ({self.counts[where]})"
        PLAN.passed[place] += 0
        return ast.Call(ast.Name(ASK, ast.Load()), [ast.Constant(place)], [])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self.visit_inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.visit_inside(node)
        if (self.threaded or node.name in self.called) and node.name != "__init__":
            self.functions.append(node.name)
            node.body.insert(1 if ast.get_docstring(node) else 0, ast.Expr(self.question("called")))
            self.functions.pop()
        return node

    def visit_inside(self, node: Any) -> Any:
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        loop = ast.unparse(node.test)
        self.generic_visit(node)
        if self.threaded:
            node.body.insert(0, ast.Expr(self.question(f"while {loop}")))
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        question = self.question(ast.unparse(node.value))
        self.generic_visit(node)
        node.value = ast.BoolOp(ast.Or(), [question, node.value])
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        question = self.question(ast.unparse(node.iter))
        self.generic_visit(node)
        node.iter = ast.BoolOp(ast.Or(), [question, node.iter])
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        first = node.items[0]
        question = self.question(ast.unparse(first.context_expr))
        self.generic_visit(node)
        first.context_expr = ast.BoolOp(ast.Or(), [question, first.context_expr])
        return node


def find_called(tree: ast.Module) -> set[str]:
    """Return the functions that a thread or an event loop is to call on its own, by how that is stated."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    given = [arg for call in calls if call.func.attr in HANDS_OVER for arg in call.args]  # type: ignore[attr-defined]
    return {arg.attr for arg in given if isinstance(arg, ast.Attribute)}


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with the questions in it."""

    def source_to_code(self, data: Any, path: Any, **_: Any) -> Any:  # type: ignore[override]
        tree = ast.parse(data, path)
        module = self.name.removeprefix("deepprof.live.")
        Places(module, find_called(tree), threaded=b"threading.Thread(" in bytes(data)).visit(tree)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[ASK] = PLAN.ask
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of packages for `Loader`."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.begin = tuple(f"{package}." for package in packages)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not name.startswith(self.begin):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(name, spec.loader.path)
        return spec


def install(*packages: str) -> None:
    """Have all modules of the packages that are imported from now on ask `PLAN`."""
    finder = Finder(packages)
    loaded = [name for name in sys.modules if name.startswith(finder.begin)]
    if loaded:
        raise RuntimeError(f"imported too early: {loaded}")
    sys.meta_path.insert(0, finder)
