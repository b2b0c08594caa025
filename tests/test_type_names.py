"""What is imported for types alone is not there when the code runs; no type checker sees where it is used all the same."""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("deepprof", "collectors", "mining", "metrics", "benchmarks", "tests")
MODULES = sorted({file.resolve() for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")})


def names_for_types(tree: ast.Module) -> set[str]:
    """Return what a module imports where types are checked, and nowhere else at its top."""
    checked = [each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
    imports = [each for block in checked for each in block.body if isinstance(each, ast.Import | ast.ImportFrom)]
    return {name.asname or name.name.partition(".")[0] for each in imports for name in each.names}


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_is_needed_that_only_type_checkers_import(folder: str) -> None:
    wrong = []
    for file in (module for module in MODULES if module.is_relative_to((ROOT / folder).resolve())):
        tree = ast.parse(file.read_text())
        names = names_for_types(tree)
        loads = [each for code in codes(compile(tree, file, "exec")) for each in dis.get_instructions(code)]
        found = {each.argval for each in loads if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")} & names
        wrong += [(str(file.relative_to(ROOT)), sorted(found))] if found else []
    assert wrong == []
