"""Which tools there are: built-in ones and plug-ins, each name once."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from deepprof.collectors import plugins
from deepprof.collectors.errors import UsageError
from deepprof.collectors.plugins import PlugInWarning
from deepprof.tools import Tool, find_tool, installed_tools
from deepprof.tools.builtin.kernel_frequency import KernelFrequency


class Mine(Tool):
    """A tool of a package."""


class Same(Tool):
    name = "kernel-frequency"


class Listing(Tool):
    name = "list"


class Numbered(Tool):
    name = 3


@pytest.fixture
def offer(monkeypatch):
    def offer(*names: str) -> None:
        points = [EntryPoint(name.lower(), f"{__name__}:{name}", "deepprof.tools") for name in names]
        monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])

    return offer


def test_built_in_tools_load(offer) -> None:
    offer()
    assert installed_tools()["kernel-frequency"] is KernelFrequency
    assert all(issubclass(kind, Tool) and kind.__doc__ for kind in installed_tools().values())


def test_a_plug_in_is_found_as_a_class_by_its_own_name(offer) -> None:
    offer("Mine")
    assert find_tool("mine") is Mine


def test_a_name_that_is_taken_is_a_warning(offer) -> None:
    offer("Same")
    with pytest.warns(PlugInWarning, match="test_registry:Same is left out: kernel-frequency is another tool's name"):
        assert find_tool("kernel-frequency") is KernelFrequency


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Listing", r"TypeError: 'list' cannot be a tool's name"),
        ("Numbered", r"TypeError: 3 cannot be a tool's name"),
        ("PlugInWarning", r"TypeError: this is no tool; one is a subclass of deepprof.tools.Tool"),
        ("Absent", r"AttributeError: .*Absent"),
    ],
)
def test_what_is_no_tool_is_a_warning_that_names_it(offer, name, said) -> None:
    offer(name, "Mine")
    with pytest.warns(PlugInWarning, match=rf"^plug-in {name.lower()} .* raised {said}.*; uninstall or report it"):
        assert find_tool("mine") is Mine
    with pytest.raises(
        UsageError, match=rf"^no tool 'nosuch'; there are: .*mine.*; plug-in {name.lower()} .* raised {said}"
    ):
        find_tool("nosuch")
