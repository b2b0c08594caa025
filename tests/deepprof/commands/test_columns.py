"""`--columns` and `read_job(columns=…)`: a table of any tool is diagnosed as a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepprof
from deepprof.collectors.errors import UsageError
from deepprof.commands import main

FLAG = "start=Begin,duration=Length,name=Kernel,unit=us"


def write(path: Path) -> Path:
    """Write ten iterations of four kernels, 1 ms each."""
    kernels = [(at * 1000 + place * 200, f"kernel_{place}") for at in range(10) for place in range(4)]
    lines = ["Begin,Length,Kernel", *(f"{start},150,{name}" for start, name in kernels)]
    path.write_text("\n".join(lines))
    return path


def test_a_mapped_table_is_diagnosed(tmp_path, capfd):
    assert main(["diagnose", str(write(tmp_path / "a.csv")), "--columns", FLAG, "--format", "json"]) == 0
    assert '"iterations"' in capfd.readouterr().out
    (loop,) = deepprof.analyze(deepprof.read_job(tmp_path / "a.csv", columns=FLAG)).loops
    assert len(loop.iterations) == 10
    assert loop.period == 4


def test_several_tables_are_the_ranks_of_one_job(tmp_path):
    for rank in range(3):
        write(tmp_path / f"rank-{rank}.csv")
    traces = deepprof.read_job(str(tmp_path / "*.csv"), columns=FLAG)
    assert [trace.rank for trace in traces] == [0, 1, 2]


def test_without_the_flag_the_message_shows_it(tmp_path, capfd):
    assert main(["diagnose", str(write(tmp_path / "a.csv"))]) == 2
    error = capfd.readouterr().err
    assert "is a table of 'Begin', 'Length', 'Kernel'" in error
    assert "--columns start=COLUMN,duration=COLUMN" in error
    assert error.count("\n") == 1


def test_a_wrong_flag_is_one_line(tmp_path, capfd):
    assert main(["diagnose", str(write(tmp_path / "a.csv")), "--columns", "begin=Begin"]) == 2
    assert "unknown key 'begin'; keys are start" in capfd.readouterr().err
    with pytest.raises(UsageError, match="unknown key"):
        deepprof.read_job(tmp_path / "a.csv", columns={"begin": "Begin"})
