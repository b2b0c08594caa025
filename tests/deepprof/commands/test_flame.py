"""`deepprof flame`, as its users call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.commands.arguments import CONTEXT_MEASURES
from deepprof.render.flame import MEASURES
from deepprof.simulation import simulate, write
from tests.deepprof.job.test_details import OPERATORS


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("job") / "job.json"
    write(simulate("healthy", iterations=6, seed=1), path)
    return str(path)


def test_what_can_be_chosen_is_what_can_be_drawn() -> None:
    assert tuple(MEASURES) == CONTEXT_MEASURES


def drawn(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main(["flame", *args]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("by", ["device", "host", "idle", "launches", "bytes"])
@pytest.mark.parametrize("more", [(), ("--bottom-up",), ("--iteration", "3")])
def test_it_is_drawn(job: str, capsys: pytest.CaptureFixture[str], by: str, more: tuple[str, ...]) -> None:
    title, first, *_ = drawn(capsys, job, "--by", by, *more)
    assert title.startswith({"idle": "idle time", "bytes": "bytes copied"}.get(by, by))
    assert ("of iteration 3" in title) == (more[:1] == ("--iteration",))
    assert "%" in first


def test_a_search_says_what_it_found(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    title, *lines = drawn(capsys, job, "--search", "optimizer", "--by", "launches")
    assert "of it in 'optimizer'" in title
    assert "Optimizer" in "".join(lines)
    title, *lines = drawn(capsys, job, "--search", "nothing like that")
    assert "0 ns of it in 'nothing like that'" in title


def test_without_python_functions_it_says_how_to_record_them(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "with_stack=True" in drawn(capsys, job)[-1]


def test_call_stacks_are_shown_without_an_option(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(OPERATORS)
    assert "step train.py:3" in "".join(drawn(capsys, str(path)))
    assert main(["export", str(path), "--to", "collapsed", "--stacks", "-o", str(tmp_path / "a.txt")]) == 0
    assert "step train.py:3" in (tmp_path / "a.txt").read_text()
    assert main(["export", str(path), "--to", "csv", "--stacks", "-o", str(tmp_path / "b")]) == 2
    assert "--stacks: csv shows no calling contexts" in capsys.readouterr().err
    assert main(["export", str(path), "--to", "csv", "--hlo", str(tmp_path), "-o", str(tmp_path / "b")]) == 2
    assert "--hlo: csv shows no calling contexts" in capsys.readouterr().err


def test_it_goes_to_a_file(job: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert drawn(capsys, job, "-o", str(tmp_path / "flame.txt")) == []
    assert "thread 1" in (tmp_path / "flame.txt").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--rank", "3"], "--rank 3: there is no such rank; there are 0 to 0"),
        (["--iteration", "99"], "--iteration 99: there is no such iteration; there are 0 to 7"),
        (["--depth", "0"], "at least 1"),
        (["--by", "joules"], "invalid choice"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    job: str, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert main(["flame", job, *args]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
