"""docs/diff.md is true: it shows what the command prints, its Python runs, and it names every key of the schema."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deepprof.render.comparison_json import DiffReport
from deepprof.simulation import simulate, write

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "diff.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.traces
@pytest.mark.parametrize("block", blocks("console"))
def test_the_command_prints_what_the_page_shows(block, traces):
    command, expected = block.split("\n", 1)
    run = [sys.executable, "-m", *shlex.split(command.removeprefix("$ "))]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(run, cwd=traces, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip() == expected.rstrip()


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, scenario in (("before", "healthy"), ("after", "copy-bound")):
        write(simulate(scenario, iterations=10), tmp_path / f"{name}.json.gz")
    (code,) = blocks("python")
    exec(compile(code, "docs/diff.md", "exec"), {})  # noqa: S102 - our own document
    assert "exposed_htod_ns" in capsys.readouterr().out


def keys(kind):
    """Yield the keys of a struct and of those in it."""
    for field in msgspec.structs.fields(kind):
        yield field.encode_name
        for found in re.findall(r"\w+Block", str(field.type)):
            yield from keys(vars(sys.modules[DiffReport.__module__])[found])


def test_every_key_of_the_schema_is_explained():
    explained = set(re.findall(r"`(\w+)`", PAGE))
    assert set(keys(DiffReport)) - explained == set()
