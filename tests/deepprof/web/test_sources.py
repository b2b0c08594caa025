"""Lines of code: only of Python files that the trace names."""

from __future__ import annotations

import os
from types import SimpleNamespace

import polars as pl
import pytest

from deepprof.web.sources import AROUND, SourceFiles


def files_of(*names: str) -> SourceFiles:
    return SourceFiles(SimpleNamespace(contexts=pl.DataFrame({"file": [*names, None]})))  # type: ignore[arg-type]


def test_the_lines_around_a_line(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_text("".join(f"line {k}\n" for k in range(1, 101)))
    source = files_of(str(path)).read(str(path), 50)
    assert source is not None
    assert source.first == 50 - AROUND
    assert source.lines[50 - source.first] == "line 50"
    assert len(source.lines) == 2 * AROUND + 1
    assert files_of(str(path)).read(str(path), 1).lines[0] == "line 1"
    assert files_of(str(path)).read(str(path), 100_000).lines == []


def test_lines_are_those_that_python_counts(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"import a\n\f\ndef f():\r\n    return '\xe2\x80\xa8'\n")
    source = files_of(str(path)).read(str(path), 3)
    assert source.lines == ["import a", "\f", "def f():", "    return '\u2028'"]


def test_a_file_that_the_trace_does_not_name_is_not_read(tmp_path) -> None:
    path = tmp_path / "secret.py"
    path.write_text("secret = 1\n")
    assert files_of("train.py").read(str(path), 1) is None
    assert files_of(str(path)).read(f"{tmp_path}/./secret.py", 1) is None


@pytest.mark.parametrize("line", [0, -1, 1 << 40])
def test_lines_that_no_file_has(tmp_path, line) -> None:
    path = tmp_path / "train.py"
    path.write_text("x\n")
    assert files_of(str(path)).read(str(path), line) is None


def test_what_is_no_python_file_is_not_shown(tmp_path) -> None:
    path = tmp_path / "shadow"
    path.write_text("root:x\n")
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    folder = tmp_path / "folder.py"
    folder.mkdir()
    names = [str(path), str(pipe), str(folder), str(tmp_path / "gone.py"), "nul\0.py", "/dev/zero"]
    for name in names:
        source = files_of(*names).read(name, 1)
        assert source is not None
        assert source.lines == []
        assert source.problem


def test_a_large_file_is_not_read(tmp_path, monkeypatch) -> None:
    path = tmp_path / "large.py"
    path.write_text("x = 1\n" * 100)
    monkeypatch.setattr("deepprof.web.sources.MOST_NBYTES", 10)
    assert "no file of up to" in files_of(str(path)).read(str(path), 1).problem
