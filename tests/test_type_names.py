"""What is imported for types alone is not there when the code runs; type checkers do not see where it is used then."""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("deepprof", "collectors", "mining", "metrics", "benchmarks", "tests")


def take_names_for_types(tree: ast.Module) -> set[str]:
    """Take what is for type checkers out of a module, and return the names that are imported there."""
    blocks = [each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
    imports = [each for block in blocks for each in block.body if isinstance(each, ast.Import | ast.ImportFrom)]
    for block in blocks:
        block.body = [ast.copy_location(ast.Pass(), block.body[0])]
    return {name.asname or name.name.partition(".")[0] for each in imports for name in each.names}


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def find_missing(file: Path) -> set[str]:
    """Return the names that a module uses when it runs, and imports for type checkers alone."""
    tree = ast.parse(file.read_text())
    names = take_names_for_types(tree)
    if not names:
        return names
    whole = compile(tree, file, "exec")
    used = {each.argval for code in codes(whole) for each in dis.get_instructions(code) if each.opname in LOADS}
    return (names & used) - {each.argval for each in dis.get_instructions(whole) if each.opname == "STORE_NAME"}


LOADS = ("LOAD_GLOBAL", "LOAD_NAME")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_is_needed_that_only_type_checkers_import(folder: str) -> None:
    found = {str(file): find_missing(file) for file in sorted((ROOT / folder).resolve().rglob("*.py"))}
    assert len(found) > 3
    assert {file: names for file, names in found.items() if names} == {}
