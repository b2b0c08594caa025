"""The tables of patterns: every line is reached by its own example, and none is a whole name."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from benchmarks.kernel_names.labels import read_labels
from deepprof.metrics.kernels.kinds import CATEGORIES, PRODUCTS
from deepprof.metrics.kernels.launch_rules import OperatorRule, OperatorRules, read_rules
from deepprof.metrics.kernels.name_kinds import FoundPatterns, classify_names, find_patterns
from deepprof.metrics.kernels.pattern_tables import (
    KernelPattern,
    PatternError,
    PatternTable,
    list_files,
    list_tables,
    read_table,
    write_ascii,
)

LINES = [(table, number) for table in list_tables() for number in range(len(table.patterns))]
PLAIN = re.compile(r"[0-9A-Za-z_:. ]+")


def test_every_file_is_a_valid_table() -> None:
    tables = [read_table(path) for path in list_files()]
    assert len(tables) > 20
    assert {table.priority for table in tables} == {table.priority for table in list_tables()}


def test_every_pattern_is_the_first_that_its_example_matches() -> None:
    examples = pl.Series([table.patterns[number].example for table, number in LINES])
    found: FoundPatterns = find_patterns(examples, list_tables())
    reached = [found.tables[table].patterns[number] for table, number in zip(found.table, found.pattern, strict=True)]
    own = [table.patterns[number] for table, number in LINES]
    missed = [pattern.example for pattern, first in zip(own, reached, strict=True) if pattern != first]
    assert missed == []
    assert len(LINES) > 400


def test_examples_differ() -> None:
    counts = Counter((table.library, table.patterns[number].example) for table, number in LINES)
    assert [example for example, count in counts.items() if count > 1] == []


def test_no_pattern_is_a_whole_name() -> None:
    names = {label.name for label in read_labels()} | {table.patterns[number].example for table, number in LINES}
    whole = [
        pattern.match
        for table, number in LINES
        for pattern in [table.patterns[number]]
        if re.sub(r"\\(.)|[\^$]", r"\1", pattern.match) in names and len(pattern.match) > 40
    ]
    assert whole == []
    both_ends = [
        table.patterns[number].match
        for table, number in LINES
        if re.fullmatch(rf"\^{PLAIN.pattern}\$", table.patterns[number].match) and table.about == "kernels"
    ]
    assert both_ends == []


def test_only_products_have_a_precision_and_a_unit() -> None:
    wrong = [
        pattern.match
        for table in list_tables()
        for pattern in table.patterns
        if (pattern.precision or pattern.unit) and pattern.category not in PRODUCTS
    ]
    assert wrong == []


def test_every_category_but_none_is_told_by_some_pattern() -> None:
    assert {table.patterns[number].category for table, number in LINES} == set(CATEGORIES)


def test_every_rule_about_operators_fits_its_example() -> None:
    rules: OperatorRules = read_rules()
    for rule in rules.rules:
        operator, kernel = rule.example
        assert pl.Series([operator]).str.contains(rule.operator)[0]
        assert rule.kernel is None or pl.Series([kernel]).str.contains(rule.kernel)[0]
        assert not rule.kinds or classify_names(pl.Series([kernel]))["category"][0] in rule.kinds
    assert isinstance(rules.rules[0], OperatorRule)


@pytest.mark.parametrize("pattern", [r"a\wb", r"[\w.]+x", r"\bfloat\b", r"x\\d", r"^(?:a|b)\d+$", r"\(\)\s*"])
@pytest.mark.parametrize("text", ["a_b", "a.b.x", "x float y", r"x\d", "a12", "() ", "", "float2", "b", "axb"])
def test_a_pattern_of_ascii_classes_matches_the_same_names(pattern: str, text: str) -> None:
    names = pl.Series([text])
    assert names.str.contains(write_ascii(pattern)).to_list() == names.str.contains(pattern).to_list()


def write(
    folder: Path, lines: str, head: str = 'schema = "deepprof.kernels/1"\nlibrary = "mine"\npriority = 1'
) -> Path:
    path = folder / "mine.toml"
    path.write_text(f"{head}\npatterns = [\n{lines}\n]\n")
    return path


LINE = '{{ match = \'{}\', category = "{}", example = "x", source = "y" }},'


def test_a_pattern_that_does_not_compile_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, LINE.format("fine", "matmul") + "\n" + LINE.format("bro(ken", "matmul"))
    with pytest.raises(PatternError) as caught:
        read_table(path)
    assert str(caught.value).startswith("mine.toml, line 6: 'bro(ken' does not compile: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (LINE.format("x", "multiplication"), "Invalid enum value 'multiplication' - at `$.patterns[0].category`"),
        ('{ match = \'x\', category = "matmul", colour = 1, example = "x", source = "y" },', "unknown field `colour`"),
        ("{ match = 'x' },", "missing required field"),
        ("nonsense", "mine.toml: "),
    ],
)
def test_a_table_that_is_not_valid_is_one_line(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(PatternError, match=re.escape(words)) as caught:
        read_table(write(tmp_path, lines))
    assert str(caught.value).startswith("mine.toml: ")


def test_the_first_pattern_counts_and_types_fill_what_it_leaves_open(tmp_path: Path) -> None:
    head = (
        'schema = "deepprof.kernels/1"\nlibrary = "mine"\npriority = 1\nnames = "mul"\ntypes = [\n'
        '{ match = \'half\', precision = "fp16", source = "s" },\n'
        '{ match = \'fast\', unit = "tensor_core", source = "s", sure = false },\n]'
    )
    mine = read_table(write(tmp_path, LINE.format("mul", "matmul") + "\n" + LINE.format("mul_add|^add", "loss"), head))
    assert isinstance(mine, PatternTable)
    assert isinstance(mine.patterns[0], KernelPattern)
    kinds = classify_names(pl.Series(["mul_add half", "mul half fast", "mul", "add"]), [mine])
    assert kinds.rows() == [
        ("matmul", "fp16", None, "mine", None, False),
        ("matmul", "fp16", "tensor_core", "mine", None, False),
        ("matmul", None, None, "mine", None, False),
        ("unknown", None, None, None, None, False),
    ]
