"""The figures of the source code, each a number that should fall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from deepprof.commands import COMMANDS
from tests.house.source import Module

Graph = Mapping[str, set[str]]


def measure(modules: Mapping[str, Module]) -> dict[str, int]:
    """Return each figure by its name."""
    names = Counter(each.path.name for each in modules.values() if each.path.name != "__init__.py")
    graph = {name: each.list_imports(modules, for_types=False) for name, each in modules.items()}
    return {
        "modules": len(modules),
        "lines": sum(each.lines for each in modules.values()),
        "words of docstrings and comments": sum(len(" ".join(each.read_prose()).split()) for each in modules.values()),
        "file names in several packages": sum(count > 1 for count in names.values()),
        "circles of imports, types included": sum(len(each) > 1 for each in find_circles(graph)),
        "imports for types alone": sum(len(each.list_imports(modules, for_types=True)) for each in modules.values()),
        "lines of the longest file": max(each.lines for each in modules.values()),
        "lines of the longest function": max(lines for each in modules.values() for lines in each.list_functions()),
        "commands at the top": len(COMMANDS),
    }


def find_circles(graph: Graph) -> Iterator[set[str]]:
    """Yield the largest sets of modules that import each other, in any number of steps; a module alone is one, too."""
    left, turned = set(graph), _turn(graph)
    while left:
        name = left.pop()
        circle = _reach(graph, name) & _reach(turned, name)
        left -= circle
        yield circle


def _reach(graph: Graph, name: str) -> set[str]:
    """Return what a module imports in any number of steps, with itself."""
    found, new = {name}, [name]
    while new:
        more = graph.get(new.pop(), set()) - found
        found |= more
        new += more
    return found


def _turn(graph: Graph) -> dict[str, set[str]]:
    """Return who imports each module."""
    turned: dict[str, set[str]] = {name: set() for name in graph}
    for name, imported in graph.items():
        for each in imported:
            turned[each].add(name)
    return turned
