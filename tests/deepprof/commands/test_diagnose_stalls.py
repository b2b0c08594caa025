"""`deepprof diagnose --ncu`, as its users call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.cases.contexts import CASES
from benchmarks.cases.contexts import write as write_case
from deepprof.collectors.store.rank import write_rank
from deepprof.commands import main
from tests.collectors.stalls.exports import ratios, write_details, write_raw

KERNEL = "addmm_kernel"  # with 18 % of the device's time


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("job") / "job"
    (trace,) = write_case(CASES["a function with half of the work"][0])
    write_rank(trace, path)
    return str(path)


@pytest.mark.parametrize("form", [write_raw, write_details])
def test_stall_reasons_are_in_the_report(
    job: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: Callable[..., str]
) -> None:
    path = tmp_path / "stalls.csv"
    path.write_text(form([(KERNEL, ratios(math_pipe_throttle=3, selected=1)), ("else", ratios(wait=1))]))
    assert main(["diagnose", job, "--ncu", str(path), "--format", "json", "--all"]) == 0
    report = json.loads(capsys.readouterr().out)
    (found,) = (each for each in report["findings"] if each["rule"] == "stalled-kernels")
    assert found["evidence"]["math_pipe_throttle_ratio"] == 0.75
    assert "1 kernel of 2 in" in json.dumps(report)
    assert main(["diagnose", job, "--format", "json", "--all"]) == 0
    assert "stalled-kernels" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file; check the path"),
        ("", "is no export of Nsight Compute"),
        (write_raw([("no such kernel", ratios(wait=1))]), "no trace has any of its 1 kernel; profile the same program"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    job: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "stalls.csv"
    if text is not None:
        path.write_text(text)
    assert main(["diagnose", job, "--ncu", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "stalls.csv" in line
    assert said in line


@pytest.mark.parametrize("option", [["--cluster", "local"], ["--daemon", "unix:/nowhere"]])
def test_it_is_for_traces_that_are_read_here(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert main(["diagnose", "job", "--ncu", "a.csv", *option]) == 2
    assert f"leave it out with {option[0]}" in capsys.readouterr().err
