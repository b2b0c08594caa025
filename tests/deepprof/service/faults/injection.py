"""Errors put into the daemon's code where nobody expects one: at every await, and in what its threads run.

`install` has the modules of `deepprof.service` compiled with a question before each of those places, "shall this fail
now?", so that the list of places is read off the code and a new one is in it by itself. Nothing imported before takes
part. A place is named by its module, its function and its number there.
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

PACKAGE = "deepprof.service"
ASK = "__shall_fail__"


class InjectedError(Exception):
    """What nobody foresaw."""


@dataclass
class Plan:
    """Where the next error is; `passed` counts how often every known place was passed."""

    place: str = ""
    passed: Counter[str] = field(default_factory=Counter)

    def ask(self, place: str) -> None:
        """Raise at the place that is armed, once."""
        self.passed[place] += 1
        if place == self.place:
            self.place = ""
            raise InjectedError(place)


PLAN = Plan()


class Places(ast.NodeTransformer):
    """Puts the question before every await, and into every function of a module that starts a thread."""

    def __init__(self, module: str, *, threaded: bool) -> None:
        self.module, self.threaded = module.removeprefix(f"{PACKAGE}."), threaded
        self.functions: list[str] = []
        self.counts: Counter[str] = Counter()

    def question(self) -> ast.Call:
        where = f"{self.module}:{'.'.join(self.functions)}"
        place = f"{where}:{self.counts[where]}"
        self.counts[where] += 1
        PLAN.passed[place] += 0
        return ast.Call(ast.Name(ASK, ast.Load()), [ast.Constant(place)], [])

    def before(self, value: ast.expr) -> ast.expr:
        return ast.BoolOp(ast.Or(), [self.question(), value])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self.visit_inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.visit_inside(node)
        if self.threaded and node.name != "__init__":
            self.functions.append(node.name)
            node.body.insert(1 if ast.get_docstring(node) else 0, ast.Expr(self.question()))
            self.functions.pop()
        return node

    def visit_inside(self, node: Any) -> Any:
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        node.value = self.before(node.value)
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        self.generic_visit(node)
        node.iter = self.before(node.iter)
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        node.items[0].context_expr = self.before(node.items[0].context_expr)
        return node


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with the questions in it."""

    def source_to_code(self, data: Any, path: Any, **_: Any) -> Any:  # type: ignore[override]
        tree = ast.parse(data, path)
        Places(self.name, threaded=b"threading.Thread(" in bytes(data)).visit(tree)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[ASK] = PLAN.ask
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the daemon's modules for `Loader`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not name.startswith(f"{PACKAGE}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(name, spec.loader.path)
        return spec


def install() -> None:
    """Have all modules of the daemon that are imported from now on ask `PLAN`."""
    loaded = [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]
    if loaded:
        raise RuntimeError(f"imported too early: {loaded}")
    sys.meta_path.insert(0, Finder())
