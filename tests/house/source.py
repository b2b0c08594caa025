"""The product's modules as they are in its folders, and what each of them states and imports."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("deepprof", "collectors", "mining", "metrics")
GENERATED = "deepprof/v1/"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
COUNTED = (*DOCUMENTED, ast.If, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Module:
    """One file of Python; `name` is the name that it is imported by."""

    path: Path
    name: str
    package: str  # whose relative imports it would make

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """What is counted of its syntax, in any order."""
        return tuple(each for each in ast.walk(ast.parse(self.text)) if isinstance(each, COUNTED))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def list_functions(self) -> list[int]:
        """Return the lines of every function."""
        return [(each.end_lineno or 0) - each.lineno + 1 for each in self.nodes if isinstance(each, FUNCTIONS)]

    def read_prose(self) -> Iterator[str]:
        """Yield its docstrings and comments."""
        yield from (ast.get_docstring(each) or "" for each in self.nodes if isinstance(each, DOCUMENTED))
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        yield from (token.string for token in tokens if token.type == tokenize.COMMENT)

    def list_imports(self, modules: Mapping[str, Module], *, for_types: bool) -> set[str]:
        """Return the modules of the product that it imports anywhere; with `for_types` only those for types alone."""
        guarded = (each for each in self.nodes if isinstance(each, ast.If) and _is_for_types(each))
        nodes = [inner for each in guarded for inner in ast.walk(each)] if for_types else self.nodes
        return {name for node in nodes for name in _list_targets(node, modules)} - {self.name}


def _is_for_types(node: ast.If) -> bool:
    """Return whether a branch is read by type checkers alone."""
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _list_targets(node: ast.AST, modules: Mapping[str, Module]) -> Iterator[str]:
    """Yield the modules that an import names; `from package import module` imports `package.module`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom) and node.module and node.module in modules and not node.level:
        inner = (f"{node.module}.{alias.name}" for alias in node.names)
        yield from (name if name in modules else node.module for name in inner)


def read_modules(root: Path = ROOT) -> dict[str, Module]:
    """Return the product's modules by name, without tests and generated code."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            inside = path.relative_to(root)
            if _is_linked(root, inside) or inside.as_posix().startswith(GENERATED):
                continue
            parts = [*(() if folder == "deepprof" else ("deepprof",)), *inside.with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = Module(path, name, name if is_package else ".".join(parts[:-1]))
    return found


def _is_linked(root: Path, inside: Path) -> bool:
    """Return whether a file is behind a link to one of the other folders, where it is read already."""
    return any((root / each).is_symlink() for each in inside.parents)
