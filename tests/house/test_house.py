"""The ratchet: no figure of the source code is above its limit, and what is counted is counted right."""

from __future__ import annotations

from pathlib import Path

from tests.house.figures import find_circles, measure
from tests.house.limits import Limit, find_raised, read_limits
from tests.house.plain_words import count_frequent, find_frequent, read_words
from tests.house.source import read_modules


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_no_figure_is_above_its_limit() -> None:
    figures, limits = measure(read_modules()) | count_frequent(), read_limits()
    assert set(figures) == set(limits)
    assert not find_raised(figures, limits)


def test_a_figure_above_its_limit_is_named() -> None:
    limits = {"modules": Limit(9, 9), "lines": Limit(8, 7)}
    assert find_raised({"modules": 9, "lines": 8}, limits) == ["lines: 8, at most 7; take something away (make house)"]


def test_circles_are_found_over_any_number_of_steps() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e", "d"}}
    assert sorted(map(sorted, find_circles(graph))) == [["a", "b", "c"], ["d"], ["e"]]


def test_modules_are_read_once_and_without_generated_code(tmp_path: Path) -> None:
    files = {
        "deepprof/__init__.py": '"""One two."""\n',
        "deepprof/v1/a_pb2.py": "x = 1\n",
        "deepprof/ranks.py": "# three\nfrom deepprof.metrics import ranks\nimport deepprof.mining.loops\n",
        "metrics/__init__.py": "",
        "metrics/ranks.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import deepprof.ranks\n",
        "mining/loops.py": "def f():\n    return 1\n",
    }
    write(tmp_path, files)
    (tmp_path / "deepprof" / "metrics").symlink_to("../metrics")
    modules = read_modules(tmp_path)
    assert sorted(modules) == [
        "deepprof",
        "deepprof.metrics",
        "deepprof.metrics.ranks",
        "deepprof.mining.loops",
        "deepprof.ranks",
    ]
    figures = measure(modules)
    assert (figures["modules"], figures["lines"], figures["words of docstrings and comments"]) == (5, 9, 4)
    assert (figures["file names in several packages"], figures["circles of imports, types included"]) == (1, 1)
    assert (figures["imports for types alone"], figures["lines of the longest function"]) == (1, 2)


def test_words_above_every_peer_are_found_by_frequency() -> None:
    plain = ["word " * 9_990]
    assert find_frequent([*plain, "Whose_rows, whose `x`; so many. so_many", "let go"]) == {
        "so many so much": 2e4 / 10_000,
        "let go": 1.0,
    }
    assert find_frequent([]) == {}


def test_words_are_read_from_texts_comments_and_names() -> None:
    source = '''"""A module."""\nknown = f"of {1} row"  # a comment\ndef find_one(the_rows):\n    """Return."""\n'''
    found = ["A module.", "known", "of ", " row", "find_one", "the_rows", "Return.", "# a comment"]
    assert sorted(read_words(source)) == sorted(found)


def test_parts_are_counted_apart(tmp_path: Path) -> None:
    files = {"mining/a.py": "# beside\n", "tests/b.py": "told = 1\n", "docs/c.md": "Plain.\n```\nbeside\n```\n"}
    write(tmp_path, files)
    assert count_frequent(tmp_path) == {
        "house words of product": 1,
        "house words of documents": 0,
        "house words of tests": 1,
    }
