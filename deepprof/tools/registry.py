"""The tools that there are: built-in ones, and those of installed packages."""

from __future__ import annotations

import warnings

from deepprof.collectors.errors import UsageError
from deepprof.collectors.plugins import PlugIn, PlugInWarning, load
from deepprof.tools.tool import Tool

GROUP = "deepprof.tools"
BUILTIN_TOOLS = (
    "deepprof.tools.builtin.kernel_frequency:KernelFrequency",
    "deepprof.tools.builtin.leaks:Leaks",
    "deepprof.tools.builtin.memory:Memory",
    "deepprof.tools.builtin.out_of_memory:OutOfMemory",
    "deepprof.tools.builtin.working_set:WorkingSet",
    "deepprof.tools.builtin.hotness:Hotness",
    "deepprof.tools.builtin.transfers:Transfers",
    "deepprof.tools.builtin.parallelism:Parallelism",
    "deepprof.tools.builtin.prefetch:Prefetch",
)
LIST = "list"  # of `deepprof tool list`: no tool can have this name


def installed_tools() -> dict[str, type[Tool]]:
    """Return the built-in tools and those of installed packages, by name; one that does not load is a warning."""
    tools: dict[str, type[Tool]] = {}
    for extension in load(GROUP, BUILTIN_TOOLS, _check_tool, instantiate=False):
        assert isinstance(extension, type)  # noqa: S101  `_check_tool` and a test of the built-in ones say so
        if issubclass(extension, Tool) and tools.setdefault(extension.name, extension) is not extension:
            text = (
                f"{extension.__module__}:{extension.__qualname__} is left out: {extension.name} is another tool's name"
            )
            warnings.warn(text, PlugInWarning, stacklevel=2)
    return tools


def find_tool(name: str) -> type[Tool]:
    """Return the tool with this name; raises `UsageError` that lists those there are, and what does not load."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tools = installed_tools()
    said = [str(warning.message) for warning in caught]
    if name not in tools:
        because = "".join(f"; {text}" for text in said)
        raise UsageError(f"no tool {name[:60]!r}; there are: {', '.join(sorted(tools)) or 'none'}{because}")
    for text in said:
        warnings.warn(text, PlugInWarning, stacklevel=2)
    return tools[name]


def _check_tool(extension: object, _: PlugIn) -> type[Tool]:
    """Return a plug-in's tool; raises `TypeError` for what is none."""
    if not (isinstance(extension, type) and issubclass(extension, Tool)):
        raise TypeError("this is no tool; one is a subclass of deepprof.tools.Tool")
    if not isinstance(extension.name, str) or extension.name in {"", LIST}:
        raise TypeError(f"{extension.name!r} cannot be a tool's name")
    return extension
