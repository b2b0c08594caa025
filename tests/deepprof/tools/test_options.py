"""A tool's options as words: typed, listed, and a line where they do not fit."""

from __future__ import annotations

from typing import Annotated

import pytest
from msgspec import Meta, field

from deepprof.collectors.errors import UsageError
from deepprof.tools import Tool, ToolError
from deepprof.tools.options import list_options, make_tool


class Typed(Tool):
    """Options of several types."""

    top_rows: Annotated[int, Meta(ge=1, description="how many")] = 3
    by: str = "name"
    ratio: float = 0.5
    only: bool = False
    limit: int | None = None
    names: list[str] = field(default_factory=list)
    sizes: Annotated[tuple[int, ...] | None, Meta(description="how large")] = None


class Needing(Tool):
    path: str


def test_words_become_typed_values() -> None:
    tool = make_tool(Typed, ["--top-rows", "5", "--by=--x", "--ratio", "1", "--only", "--limit", "-7"])
    assert tool == Typed(top_rows=5, by="--x", ratio=1.0, only=True, limit=-7)
    assert make_tool(Typed, ["--only", "false", "--by="]) == Typed(by="")
    assert make_tool(Typed, []) == Typed()


def test_an_option_of_several_values_is_given_once_for_each() -> None:
    words = ["--names", "a,b", "--only", "--names=--c", "--sizes", "3", "--sizes=-4"]
    assert make_tool(Typed, words) == Typed(names=["a,b", "--c"], only=True, sizes=(3, -4))
    assert make_tool(Typed, ["--names", "a"]) == Typed(names=["a"])
    kind = type("Sets", (Tool,), {"__annotations__": {"of": set[int], "two": tuple[str, int] | None}, "two": None})
    assert make_tool(kind, ["--of", "3", "--of", "3", "--two", "a", "--two", "1"]) == kind(of={3}, two=("a", 1))
    said = {each.option: each.description for each in list_options(Typed)}
    assert said["--names"] == "once for each value"
    assert said["--sizes"] == "how large; once for each value"


LISTED = (
    "its options: --top-rows int (3), --by str (name), --ratio float (0.5), --only bool (False), "
    "--limit int | None (None), --names list[str] ([]), --sizes tuple[int, ...] | None (None)"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--top-rows", "0"], "Expected `int` >= 1 - at `$.top_rows`"),
        (["--top-rows", "1" + 20 * "0"], "--top-rows 100000000000000000000 is beyond the numbers of 64 bits"),
        (["--limit", str(-(1 << 63) - 1)], "--limit -9223372036854775809 is beyond the numbers of 64 bits"),
        (["--top-rows"], "--top-rows needs a value"),
        (["--by"], "--by needs a value"),
        (["--by", "--only"], "--by needs a value"),
        (["--ratio", "much"], "Expected `float`, got `str` - at `$.ratio`"),
        (["--only", "perhaps"], "Expected `bool`, got `str` - at `$.only`"),
        (["--top", "3"], "--top is no option of it"),
        (["job.json"], "job.json is no option of it"),
        (["--by", "a", "--by", "b"], "--by is given twice"),
        (["\x1b[1m"], "\\x1b[1m is no option of it"),
        (["--names"], "--names needs a value"),
        (["--sizes", "1", "--sizes", "b"], "Expected `int`, got `str` - at `$.sizes[1]`"),
        (["--sizes", "1" + 20 * "0"], "--sizes 100000000000000000000 is beyond the numbers of 64 bits"),
    ],
)
def test_what_does_not_fit_is_a_line_with_the_options_there_are(words, said) -> None:
    with pytest.raises(UsageError) as raised:
        make_tool(Typed, words)
    assert str(raised.value) == f"tool typed: {said}; {LISTED}"


def test_an_option_without_a_default_is_required() -> None:
    assert [each.default for each in list_options(Needing)] == ["required"]
    with pytest.raises(UsageError, match="missing required field `path`; its options: --path str \\(required\\)"):
        make_tool(Needing, [])


def test_a_tool_without_options_says_none() -> None:
    with pytest.raises(UsageError, match="tool bare: --x is no option of it; its options: none"):
        make_tool(type("Bare", (Tool,), {}), ["--x"])


def test_meanings_come_from_the_types() -> None:
    assert [each.description for each in list_options(Typed)][:2] == ["how many", ""]


def test_types_that_do_not_exist_are_an_error_of_the_tool() -> None:
    kind = type("Strange", (Tool,), {"__annotations__": {"x": "NoSuchType"}, "x": 1, "__module__": __name__})
    with pytest.raises(ToolError, match="tool strange: its options raised NameError"):
        make_tool(kind, [])


def test_a_check_of_the_tool_itself_is_a_line_too() -> None:
    class Checking(Tool):
        low: int = 0

        def __post_init__(self) -> None:
            if self.low < 0:
                raise ValueError("low is below 0")

    with pytest.raises(UsageError, match="tool checking: low is below 0; its options: --low int"):
        make_tool(Checking, ["--low", "-1"])
