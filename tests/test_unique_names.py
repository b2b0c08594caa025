"""Names that a reader searches for are found once: classes in the project, modules in a package tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("collectors", "metrics", "mining", "deepprof")
GENERATED = ROOT / "deepprof" / "v1"


def modules() -> Iterator[Path]:
    """Yield the modules of the product; links are not followed."""
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            linked = any((ROOT / parent).is_symlink() for parent in path.relative_to(ROOT).parents)
            if not linked and GENERATED not in path.parents:
                yield path


def tree_of(path: Path) -> str:
    """Return the package tree in which a reader would mix two modules up: live parts are four of them."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: 1 if parts[0] != "deepprof" else 3 if parts[1] == "live" else 2])


def test_no_two_classes_have_one_name() -> None:
    found = defaultdict[str, list[str]](list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert len(found) > 500
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_two_modules_of_a_tree_have_one_name() -> None:
    found = defaultdict[tuple[str, str], list[str]](list)
    for path in modules():
        if path.name != "__init__.py" and "hook" not in path.parts:
            found[tree_of(path), path.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
