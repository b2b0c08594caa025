"""Names that a reader searches for are found once, and begin with an underscore where only their module uses them."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("collectors", "metrics", "mining", "deepprof", "tests", "benchmarks", "deploy", "docs")
TYPES_OF_MEMBERS = {"Attachment", "PlaceOfLoop"}  # which the page of the API names
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
TREES = ("collectors", "metrics", "mining", "deepprof")
GENERATED = ROOT / "deepprof" / "v1"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


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
        for node in ast.walk(parsed(path)):
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


def test_what_only_its_module_uses_begins_with_an_underscore() -> None:
    known = {path: parsed(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))}
    uses = {path: used_names(tree) for path, tree in known.items()}
    uses |= {path: set(re.findall(r"\w+", path.read_text())) for path in [ROOT / "web" / "view.schema.json"]}
    users = Counter(name for names in uses.values() for name in names)
    found = {}
    for path in modules():
        if path.name == "__init__.py" or path.parent.name == "rules":  # rules are found by their modules' names
            continue
        names = {node.name for node in known[path].body if isinstance(node, DEFINITIONS)} - TYPES_OF_MEMBERS
        own = [name for name in names if users[name] == (name in uses[path])]
        found[path] = [name for name in own if not name.startswith(("_", "plan_"))]  # of scenarios, by their names
    assert {path: names for path, names in found.items() if names} == {}


def used_names(tree: ast.AST) -> set[str]:
    """Return what a module names of others: imports, attributes, and words of its texts, as entry points are texts."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(re.findall(r"\w+", node.value))
    return names
