"""Tables that installed packages add under `deepprof.kernels`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors import plugins
from deepprof.collectors.plugins import PlugInWarning
from deepprof.metrics.kernels import name_kinds
from deepprof.metrics.kernels.classify import classify_names
from deepprof.metrics.kernels.pattern_tables import GROUP, KernelPattern, PatternTable, list_tables

NAMES = pl.Series(["volta_sgemm_128x64_nn", "company_kernel_7"])
MINE = PatternTable(
    schema="deepprof.kernels/1",
    library="company",
    priority=50,
    patterns=(KernelPattern(match="^company_", category="attention", example="company_kernel_7", source="ours"),),
)
BROKEN = PatternTable(
    schema="deepprof.kernels/1",
    library="broken",
    priority=1,
    patterns=(KernelPattern(match="bro(ken", category="attention", example="x", source="ours"),),
)
FILE = Path(__file__).with_name("offered.toml")
ABSENT = Path(__file__).with_name("absent.toml")
NONSENSE = 7


def make_table() -> PatternTable:
    """Return the table, as an entry point that is a function does."""
    return MINE


def fail() -> PatternTable:
    """Raise, as the code of a plug-in may."""
    raise SystemExit("two\nlines")


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Return a function that installs entry points, objects of this module by name."""

    def install(*offered: str) -> None:
        points = [EntryPoint(name, f"{__name__}:{name}", GROUP) for name in offered]
        monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == GROUP else [])
        monkeypatch.setattr(name_kinds, "_FOUND", {})
        list_tables.cache_clear()

    yield install
    list_tables.cache_clear()


@pytest.mark.parametrize("name", ["MINE", "make_table", "FILE"])
def test_a_table_may_be_offered_as_an_object_a_function_or_a_file(offer, name: str) -> None:
    offer(name)
    assert list_tables()[0].library == "company"
    assert classify_names(NAMES)["library"].to_list() == ["cuBLAS", "company"]


def test_tables_of_plug_ins_are_searched_first(offer) -> None:
    offer("MINE")
    assert [table.library for table in list_tables()].index("company") == 0
    assert list_tables()[0].priority > list_tables()[1].priority


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BROKEN", "broken: 'bro(ken' does not compile"),
        ("ABSENT", "FileNotFoundError"),
        ("NONSENSE", "is no PatternTable, path or resource"),
        ("fail", "SystemExit: two lines"),
        ("not_there", "AttributeError"),
    ],
)
def test_a_broken_plug_in_is_one_warning_that_names_it(offer, name: str, words: str) -> None:
    offer(name, "MINE")
    with pytest.warns(PlugInWarning) as caught:
        found = classify_names(NAMES)
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"plug-in {name} ")
    assert words in str(caught[0].message)
    assert "\n" not in str(caught[0].message)
    assert found["library"].to_list() == ["cuBLAS", "company"]
