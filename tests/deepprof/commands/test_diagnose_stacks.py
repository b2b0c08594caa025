"""`deepprof diagnose` on traces whose operators have call stacks: findings name the line that was being run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.simulation import simulate, write

STACK = "net/model.py(41): forward;train.py(90): <module>"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Write a job whose operators have call stacks, and no functions of Python; return its path."""
    path = tmp_path / "job.json"
    write(simulate("launch-bound", iterations=6, seed=1), path)
    document = json.loads(path.read_text())
    operators = [event for event in document["traceEvents"] if event.get("cat") == "cpu_op"]
    for event in operators:
        event.setdefault("args", {})["Call stack"] = STACK
    assert operators
    path.write_text(json.dumps(document))
    return str(path)


def test_the_line_in_a_call_stack_is_named_without_an_option(
    path: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["diagnose", path, "--format", "json"]) == 0
    report = json.loads(capsysbinary.readouterr().out)
    found = next(each for each in report["findings"] if each["rule"] == "launch-bound")
    assert (found["location"]["file"], found["location"]["line"]) == ("net/model.py", 41)
    assert "line_is" not in found["location"], "it is where the call is, not where the function begins"
    assert main(["diagnose", path]) == 0
    assert b"in forward (net/model.py:41)" in b" ".join(capsysbinary.readouterr().out.split())
