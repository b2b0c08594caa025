"""`deepprof diagnose --peaks`, as its users call it."""

from __future__ import annotations

import json

import pytest

from benchmarks.cases.peaks import cases
from deepprof.collectors.store.rank import write_rank
from deepprof.commands import main


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("job")
    (trace, *_) = next(iter(cases())).load(folder)
    write_rank(trace, folder / "job")
    return str(folder / "job")


@pytest.mark.parametrize(("given", "name"), [([], "NVIDIA H100"), (["--peaks", "H200"], "NVIDIA H200")])
def test_given_peaks_count_in_place_of_the_devices_own(
    job: str, capsys: pytest.CaptureFixture[str], given: list[str], name: str
) -> None:
    assert main(["diagnose", job, "--format", "json", *given]) == 0
    (loop,) = json.loads(capsys.readouterr().out)["loops"]
    assert loop["roofline"]["peaks"].startswith(name)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--peaks", "nothing"], "'nothing': no peaks of such a device are known"),
        (["--peaks", "A100", "--daemon"], "--peaks is for traces that are read here; leave it out with --daemon"),
    ],
)
def test_peaks_that_cannot_be_used_are_one_line(
    job: str, capsys: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    assert main(["diagnose", job, *options]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert line in error
